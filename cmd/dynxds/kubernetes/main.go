// Command dynxds-kubernetes is a control plane for the gRPC clients of a Kubernetes cluster. It serves by xDS what the API server
// has: Services, EndpointSlices, the Gateway API's routes and MeshHTTPRoutes.
//
// It is a module of its own, so that neither the plugin nor the command dynxds needs client-go. What reads objects is in
// internal/cluster, who clients are in internal/identity; all else is that of "dynxds serve".
package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/dynxds/dynxds/cmd/dynxds/internal/cmdline"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// A second signal ends the process at once.
	context.AfterFunc(ctx, stop)
	os.Exit(execute(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// execute runs the command line and returns the exit status.
func execute(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	return cmdline.Execute(ctx, newRoot(), args, stdout, stderr)
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "dynxds-kubernetes",
		Short: "xDS for the gRPC clients of a Kubernetes cluster",
	}
	root.AddCommand(newServe(), newValidate(), newRender(), newExplain())
	cmdline.Prepare(root)
	return root
}
