module dunlin.dev/bench/peers/go

// 1.23 so that timers behave as they do in current Go; nothing newer than 1.19 is used in the code.
go 1.23
