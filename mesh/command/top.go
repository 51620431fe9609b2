package command

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/dynxds/dynxds/mesh/internal/clients"
	"github.com/dynxds/dynxds/mesh/internal/cmdline"
	"github.com/dynxds/dynxds/mesh/internal/exit"
	"github.com/dynxds/dynxds/mesh/internal/status"
	"github.com/dynxds/dynxds/mesh/internal/terminal"
)

const topHelp = `Shows the clients of a control plane at a glance, the worst first: for each
destination, how many clients subscribe to it, how many of these are in sync, behind
or refuse what they were sent, of how many versions they have its resources, and
what became of RPCs to it. It asks the replicas that "dynxds clients" asks, by
--admin or --store.

The RPCs are those that clients have reported in the last six intervals (LRS, with
"loadReporting: true" of the Service). These reports have no latencies.

With HOST:PORT it asks a running process by the Client Status Discovery Service
(csds.Register), and shows its clusters, with their endpoints and RPCs.

On a terminal it is shown again and again, until an interrupt; elsewhere, and as
data, once. A replica that does not answer is named, the others are shown, and the
exit status is 3.`

func newTop() *cobra.Command {
	var (
		from     replicaFlags
		flags    processFlags
		interval time.Duration
	)
	cmd := &cobra.Command{
		Use:               "top [HOST:PORT]",
		Short:             "Show the clients of control planes, or the clusters of a process, at a glance",
		Long:              topHelp,
		Example:           "  dynxds top\n  dynxds top --admin 10.0.0.1:18002,10.0.0.2:18002 --interval 10s\n  dynxds top localhost:50051",
		Args:              cmdline.Arguments("at most one argument", 0, 1),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			if screen, ok := cmd.OutOrStdout().(*terminal.Writer); ok && screen.Redraws() && flags.format == "text" {
				flags.watch = interval
			}
			if len(args) == 1 {
				if cmd.Flags().Changed("admin") || cmd.Flags().Changed("store") {
					return exit.Usagef("--admin and --store are for control planes; %s is a process", args[0])
				}
				flags.process.Address = args[0]
				return show(cmd, &flags, func(ctx context.Context) (*status.Report, error) { return status.AskTop(ctx, flags.process) })
			}
			for _, flag := range connectionFlags {
				if cmd.Flags().Changed(flag) {
					return exit.Usagef("--%s is for a process: dynxds top HOST:PORT --%s", flag, flag)
				}
			}
			return show(cmd, &flags, func(ctx context.Context) (*clients.Top, error) {
				replicas, err := from.replicas(ctx, cmd)
				if err != nil {
					return nil, err
				}
				top := clients.AskTop(ctx, replicas, flags.timeout)
				return top, top.Err()
			})
		},
	}
	flags.addConnection(cmd)
	from.add(cmd)
	cmdline.Timeout(cmd, &flags.timeout, "how long to wait for an answer")
	cmdline.Period(cmd, &interval, "interval", 2*time.Second, "on a terminal, the time between two answers")
	return cmd
}
