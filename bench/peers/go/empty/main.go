// The program whose life start-up measures: a runtime that starts, has nothing to do, and ends.
package main

func main() {}
