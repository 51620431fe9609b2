package command

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/dynxds/dynxds/mesh/internal/cmdline"
	"github.com/dynxds/dynxds/mesh/internal/exit"
	"github.com/dynxds/dynxds/mesh/internal/status"
)

const statusHelp = `Asks the Client Status Discovery Service (csds.Register) of a running process how it is.

A process of dynxds says whether its RPCs work, what is wrong, worst first, whether its control planes, channels and
endpoints are connected, and what became of its RPCs in the last minute; the exit status is 1 if it is failing. If it counts
RPCs only since it was asked, it is asked again 2 s later. Of other processes the state of connections is unknown.

Then it prints, for each resource that the process's xDS clients hold, its state, its version, the control plane's or the
client's error, and the populated fields that dynxds does not act on.`

func newStatus() *cobra.Command {
	var flags processFlags
	cmd := &cobra.Command{
		Use:     "status HOST:PORT",
		Short:   "Say whether a process is healthy, what its xDS clients hold, and which fields they ignore",
		Long:    statusHelp,
		Example: "  dynxds status localhost:50051\n  dynxds status localhost:50051 --state NACKED --watch",
		Args:    cmdline.Arguments("one argument", 1, 1), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := flags.filter.Check(); err != nil {
				return exit.Usagef("--name %q: %w", flags.filter.Name, err)
			}
			flags.process.Address = args[0]
			return show(cmd, &flags, func(ctx context.Context) (*status.Report, error) {
				report, err := status.Ask(ctx, flags.process)
				if err != nil {
					return nil, err
				}
				failing := report.Failing()
				if report.Apply(flags.filter); failing {
					err = &exit.Error{Code: exit.No}
				}
				return report, err
			})
		},
	}
	flags.add(cmd)
	return cmd
}
