package command

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/dynxds/dynxds/mesh/internal/cmdline"
)

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "dynxds",
		Short: "xDS for gRPC-Go clients: a control plane, tools, and a demonstration",
		Long: `dynxds is a client-side xDS plugin for gRPC-Go: import it, dial "xds:///service",
and RPCs are routed and balanced as a control plane says. This command is such a
control plane, over a folder of services and MeshHTTPRoute policies; it writes the
bootstraps of clients and looks into running ones; and it has a demonstration.`,
		Example: "  dynxds demo\n  dynxds serve examples/mesh/config",
	}
	root.AddCommand(newDemo(), newServe(), newRelay(), newApply(), newValidate(), newRender(),
		newBootstrap(), newClients(), newTop(), newStatus(), newDoctor(), newExplain(), newExplainCode(), newSchema(), newVersion())
	cmdline.Prepare(root)
	return root
}

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the versions of dynxds, gRPC and Go",
		Args:  cmdline.NoArgument,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), cmdline.Version("dynxds"))
			return err
		},
	}
}
