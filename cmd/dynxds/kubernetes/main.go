// Command dynxds-kubernetes is a control plane for the gRPC clients of a Kubernetes cluster. It serves by xDS what the API server
// has: Services, EndpointSlices and the Gateway API's routes.
//
// It is a module of its own, so that neither the plugin nor the command dynxds needs client-go. What reads objects is in
// internal/cluster, who clients are in internal/identity; all else is that of "dynxds serve".
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/dynxds/dynxds/cmd/dynxds/internal/terminal"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// A second signal ends the process at once.
	context.AfterFunc(ctx, stop)
	os.Exit(execute(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// execute runs the command line and returns the exit status.
func execute(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := &cobra.Command{
		Use:           "dynxds-kubernetes",
		Short:         "xDS for the gRPC clients of a Kubernetes cluster",
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.AddCommand(newServe())
	root.SetArgs(args)
	out, errs := terminal.New(stdout), terminal.New(stderr)
	defer out.Close() // who reads the output may have gone
	defer errs.Close()
	root.SetOut(out)
	root.SetErr(errs)
	if err := root.ExecuteContext(ctx); err != nil {
		fmt.Fprintf(errs, "dynxds-kubernetes: %s\n", err)
		return 1
	}
	return 0
}
