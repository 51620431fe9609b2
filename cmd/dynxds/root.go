package main

import "github.com/spf13/cobra"

func newRoot(run runDemo) *cobra.Command {
	root := &cobra.Command{
		Use:   "dynxds",
		Short: "xDS for gRPC-Go clients: a control plane, tools, and a demonstration",
		Long: `dynxds is a client-side xDS plugin for gRPC-Go: import it, dial "xds:///service",
and RPCs are routed and balanced as a control plane says. This command is such a
control plane, over a folder of services and MeshHTTPRoute policies; it writes the
bootstraps of clients and looks into running ones; and it has a demonstration.`,
		Example: "  dynxds demo\n  dynxds serve examples/mesh/config",
		// An error is printed once, by main, and without the usage: most errors
		// are not about the command line.
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.NoArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.AddCommand(newDemo(run), newServe(), newValidate(), newRender(), newBootstrap(), newStatus(), newVersion())
	return root
}
