// Command mutate tells how well the tests of a package notice faults in its code. It changes
// the code in one place at a time, and runs the tests for each of these mutants: a mutant that
// passes them has survived.
//
//	go run ./mutate -C .. ./internal/dynparam             # the package's own tests
//	go run ./mutate -C .. -tests ./xdsclient ./internal/ads   # and those of another package
//
// All mutants of a package are in one program, which the environment variable MUTANT switches
// on one by one: the tests are compiled once, and mutants that no test reaches are not run.
// The changes are: a condition is always true, or always false; a comparison includes or
// excludes equality; a statement is left out.
//
// It prints the survivors with their places, and the score: mutants that died, in percent. Some
// survivors are equivalent to the code as it is; which, the reader has to judge.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
)

func main() {
	o := options{out: os.Stdout}
	flag.StringVar(&o.dir, "C", ".", "the `folder` of the module")
	tests := flag.String("tests", "", "`packages`, separated by commas, whose tests are run besides those of the package")
	flag.StringVar(&o.run, "run", "", "run the tests that match this `pattern` only, as in go test")
	flag.IntVar(&o.parallel, "p", 2, "how many tests run at a time")
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "usage: mutate [flags] package")
		os.Exit(2)
	}
	o.pkg = flag.Arg(0)
	o.tests = append(o.tests, o.pkg)
	if *tests != "" {
		o.tests = append(o.tests, strings.Split(*tests, ",")...)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := mutate(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	}
}
