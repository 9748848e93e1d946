// The Go twins of dunlin's benchmarks: `go_bench NAME [--procs N] [--n N] [--quick]`, `go_bench --list`.
//
// Each metric of the workload is printed as one line of JSON, in the form of bench/registry.h.
package main

import (
	"fmt"
	"os"
	"runtime"
	"sort"
	"strconv"
)

// settings is what the command line says about one run of one workload.
type settings struct {
	procs int
	n     int // how many of what grows; 0 where nothing does
	quick bool
}

// scaled is full, or a tenth of it in a quick run (whose figures are for trying things out, not for quoting).
func (s settings) scaled(full int) int {
	if s.quick {
		return full / 10
	}
	return full
}

// results prints what a workload has measured.
type results struct {
	workload string
}

func (r results) add(metric string, value float64, unit string) {
	fmt.Printf(`{"workload":"%s","metric":"%s","peer":"go","procs":%d,"value":%.6g,"unit":"%s"}`+"\n",
		r.workload, metric, runtime.GOMAXPROCS(0), value, unit)
}

type workload func(settings, results)

// workloads is filled by the init functions of the files, one file per subject.
var workloads = map[string]workload{}

func names() []string {
	list := make([]string, 0, len(workloads))
	for name := range workloads {
		list = append(list, name)
	}
	sort.Strings(list)
	return list
}

func fail(format string, args ...interface{}) {
	fmt.Fprintf(os.Stderr, "go_bench: "+format+"\n", args...)
	os.Exit(1)
}

func main() {
	name := ""
	s := settings{procs: runtime.GOMAXPROCS(0)}
	for i := 1; i < len(os.Args); i++ {
		switch arg := os.Args[i]; {
		case arg == "--list":
			for _, name := range names() {
				fmt.Println(name)
			}
			return
		case arg == "--quick":
			s.quick = true
		case arg == "--procs" && i+1 < len(os.Args):
			i++
			n, err := strconv.Atoi(os.Args[i])
			if err != nil || n < 1 {
				fail("--procs %s: not a number of processors", os.Args[i])
			}
			s.procs = n
		case arg == "--n" && i+1 < len(os.Args):
			i++
			n, err := strconv.Atoi(os.Args[i])
			if err != nil || n < 1 {
				fail("--n %s: not a size", os.Args[i])
			}
			s.n = n
		case name == "" && arg[0] != '-':
			name = arg
		default:
			fail("%s: not understood; usage: go_bench NAME [--procs N] [--n N] [--quick] | --list", arg)
		}
	}
	run, known := workloads[name]
	if !known {
		fail("no workload %q; --list prints them", name)
	}
	runtime.GOMAXPROCS(s.procs)
	run(s, results{name})
}
