// Command dynxds is a control plane for gRPC clients, with the tools for it.
//
//   - "dynxds serve" serves xDS from a folder of services and MeshHTTPRoute policies, or from etcd, "dynxds
//     validate" checks such a folder, "dynxds render" shows what a client would get, and why;
//   - "dynxds apply", "diff", "get", "history" and "rollback" write and read the documents of several
//     replicas, which are in etcd;
//   - "dynxds bootstrap" writes a client's bootstrap file for a control plane;
//   - "dynxds status" shows the resources of a running client, "dynxds explain" says where an RPC of
//     a client goes, and why;
//   - "dynxds clients" shows what the clients of control planes have accepted and rejected;
//   - "dynxds demo" runs a control plane, backends and a client in one process; with --page it
//     shows a status page, as "dynxds serve" does.
//
// "dynxds help" lists the commands with their flags, docs/reference/folder.md describes the folder. The
// logic is in the packages below internal.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/dynxds/dynxds/cmd/dynxds/internal/demo"
)

func main() {
	quietGRPC()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// A second signal ends the process at once.
	context.AfterFunc(ctx, stop)
	os.Exit(execute(ctx, os.Args[1:], os.Stdout, os.Stderr, demo.Run))
}

// execute runs the command line and returns the exit status.
func execute(ctx context.Context, args []string, stdout, stderr io.Writer, run runDemo) int {
	out, errs := &visible{to: stdout}, &visible{to: stderr}
	defer out.Close() // who reads the output may have gone
	defer errs.Close()
	root := newRoot(run)
	root.SetArgs(args)
	root.SetOut(out)
	root.SetErr(errs)
	checkNames(root)
	if err := root.ExecuteContext(ctx); err != nil {
		exit := &exitError{code: 1, error: err}
		if errors.As(err, &exit); exit.error == nil {
			return exit.code
		}
		fmt.Fprintf(errs, "dynxds: %s\n", err)
		return exit.code
	}
	return 0
}

// exitError is an error with an exit status of its own. Without an error inside, nothing is printed.
type exitError struct {
	code int
	error
}
