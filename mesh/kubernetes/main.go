// Command dynxds-kubernetes is a control plane for the gRPC clients of a Kubernetes cluster. It serves by xDS what the API server
// has: Services, EndpointSlices, the Gateway API's routes and MeshHTTPRoutes.
//
// It is a module of its own, so that neither the plugin nor the command dynxds needs client-go. What reads objects is in
// internal/cluster, who clients are in internal/identity; all else is that of "dynxds serve".
package main

import (
	"context"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"github.com/dynxds/dynxds/mesh/internal/cmdline"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// A second signal ends the process at once.
	context.AfterFunc(ctx, stop)
	os.Exit(execute(ctx, os.Args[1:], os.Stdout, os.Stderr, klog.SetSlogLogger))
}

// execute runs the command line and returns the exit status. setLog takes the log for what client-go says, which is one for the
// whole process.
func execute(ctx context.Context, args []string, stdout, stderr io.Writer, setLog func(*slog.Logger)) int {
	setLog(slog.New(slog.DiscardHandler)) // errors have what client-go would say; "serve" has a log
	return cmdline.Execute(ctx, newRoot(setLog), args, stdout, stderr)
}

func newRoot(setLog func(*slog.Logger)) *cobra.Command {
	root := &cobra.Command{
		Use:   "dynxds-kubernetes",
		Short: "xDS for the gRPC clients of a Kubernetes cluster",
	}
	root.AddCommand(newServe(setLog), newValidate(), newRender(), newExplain(), newDoctor())
	cmdline.Prepare(root)
	return root
}
