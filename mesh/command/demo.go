package command

import (
	"github.com/spf13/cobra"

	"github.com/dynxds/dynxds/mesh/internal/cmdline"
	"github.com/dynxds/dynxds/mesh/internal/demo"
	"github.com/dynxds/dynxds/mesh/internal/webpage"
)

const demoHelp = `Runs a control plane, four gRPC backends and a client in this process, on
loopback. The client imports dynxds and dials "xds:///echo.example.com" with a
bootstrap file in a temporary folder. While it makes unary and streaming RPCs,
five things happen:

  1. the control plane splits the RPCs 90/10 between two clusters;
  2. it shifts the split to 50/50;
  3. a backend dies;
  4. the control plane moves one method to another cluster;
  5. of two more clients that go by a proxy, it lets one go direct, by dynamic
     parameters (TP2).

Each step has to show in the RPCs themselves: in who answered what share, within
what chance allows for their number, and in that none fails but those on the
dying backend's connection. The exit status is 0 only if all steps were observed.

With --page a status page on loopback shows all of it in a browser, and the RPCs
go on after the last step until an interrupt.

GRPC_GO_LOG_SEVERITY_LEVEL=info shows gRPC's own log.`

func newDemo() *cobra.Command {
	var page string
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Show routing at work: a control plane, backends and a client in one process",
		Long:  demoHelp,
		Args:  cmdline.NoArgument,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return demo.Run(cmd.Context(), page, cmd.OutOrStdout())
		},
	}
	pageFlag(cmd, &page)
	return cmd
}

// pageFlag adds the flag --page, whose address may be left out.
func pageFlag(cmd *cobra.Command, address *string) {
	cmdline.Address(cmd, address, "page", "show a status page at this address, HOST:PORT; without one, on a free port of loopback")
	cmd.Flags().Lookup("page").NoOptDefVal = webpage.DefaultAddress
}
