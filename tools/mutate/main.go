// Command mutate tells how well the tests of a package notice faults in its code. It changes
// the code in one place at a time, and runs the tests for each of these mutants: a mutant that
// passes them has survived.
//
//	go run ./mutate -C .. ./xdsclient/dynparam               # with the package's own tests
//	go run ./mutate -C .. -tests ./e2e,./xdsclient ./internal/ads # and the tests of others
//	go run ./mutate -C .. -files '^(call|retry)\.go:' ./resolver  # two files of a package
//	go run ./mutate -C .. -files '^call\.go:1[0-4].$' ./resolver  # lines 100 to 149 of one
//	go run ./mutate -C .. -short ./mesh/controlplane          # with what its tests have for "go test -short"
//	go run ./mutate -C .. -needless ./resolver               # which tests add nothing?
//
// All mutants of a package are in one program, which the environment variable MUTANT switches
// on one by one: the tests are compiled once. Each test is run once without a mutant to see
// which mutants it reaches. For a mutant only the tests that reach it are run, the quickest one
// first. Tests that take more than three times their usual time and 5 s are ended, and their
// mutant counts as dead. The changes are: a condition is always true, or always false; a
// comparison includes or excludes equality; a statement is left out.
//
// It prints the survivors with their places as it finds them, then the score: mutants that died,
// in percent. Some survivors are equivalent to the code as it is; which, the reader has to judge.
//
// With -needless it runs every test that reaches a mutant, and tells which tests could be left out together: the others
// reach and kill all that they do. Whether a specification or a past fault needs such a test, the reader has to judge.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"strings"
	"syscall"
)

func main() {
	o := options{out: os.Stdout}
	flag.StringVar(&o.dir, "C", ".", "the `folder` of the module")
	tests := flag.String("tests", "", "`packages`, separated by commas, whose tests are run besides those of the package")
	flag.StringVar(&o.run, "run", "", "run the tests that match this `pattern` only, as in go test")
	files := flag.String("files", "", "change only code whose \"file.go:line\" matches this `pattern`")
	flag.StringVar(&o.skip, "skip", "", "do not run the tests that match this `pattern`, as in go test")
	flag.BoolVar(&o.short, "short", false, "run the tests with -short, as in go test")
	flag.BoolVar(&o.needless, "needless", false, "tell which tests reach and kill nothing that the others do not")
	flag.IntVar(&o.parallel, "p", 2, "how many programs run at a time")
	flag.IntVar(&o.procs, "procs", 1, "GOMAXPROCS of each program")
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "usage: mutate [flags] package")
		os.Exit(2)
	}
	var err error
	if o.files, err = regexp.Compile(*files); err != nil {
		fmt.Fprintln(os.Stderr, "mutate: -files:", err)
		os.Exit(2)
	}
	o.pkg = flag.Arg(0)
	o.packages = append(o.packages, o.pkg)
	if *tests != "" {
		o.packages = append(o.packages, strings.Split(*tests, ",")...)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := mutate(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	}
}
