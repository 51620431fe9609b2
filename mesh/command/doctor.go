package command

import (
	"context"
	"net"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/dynxds/dynxds/mesh/explain"
	"github.com/dynxds/dynxds/mesh/internal/cmdline"
	"github.com/dynxds/dynxds/mesh/internal/doctor"
	"github.com/dynxds/dynxds/mesh/internal/exit"
)

const doctorHelp = `Follows the way of an RPC, and says at which step it fails, and what to do.

With a target, such as xds:///greeter, it tries the way as a program on this host would: the bootstrap and its certificates, then
DNS, TCP, TLS and ADS to each control plane, the Listener, the routes, each cluster, services that filters need, and each
endpoint with TLS and its health service. Without one it ends with the control planes. It sends no RPC of the application, and
takes the role of a program whose credentials leave security to the control plane.

With HOST:PORT it asks a running process by the Client Status Discovery Service (csds.Register), and says the same by what
that holds: of all its channels, or of that of a target.

The exit status is 1 if a check fails.`

func newDoctor() *cobra.Command {
	var flags processFlags
	var file string
	cmd := &cobra.Command{
		Use:     "doctor [TARGET|HOST:PORT [TARGET]]",
		Short:   "Find the step at which RPCs fail, and say what to do",
		Long:    doctorHelp,
		Example: "  dynxds doctor xds:///greeter\n  dynxds doctor xds:///greeter --bootstrap bootstrap.json\n  dynxds doctor localhost:50051",
		Args:    cmdline.Arguments("at most two arguments", 0, 2),

		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			examine := func(ctx context.Context) (*doctor.Report, error) {
				return doctor.Channel(ctx, file, ""), nil
			}
			if len(args) > 0 {
				if last := args[len(args)-1]; strings.Contains(last, "://") {
					if _, _, err := explain.ParseTarget(last); err != nil {
						return exit.With(exit.Usage, err)
					}
				}
				target := ""
				if len(args) == 2 {
					target = doctor.Target(args[1])
				}
				switch _, _, err := net.SplitHostPort(args[0]); {
				case err == nil && doctor.Target(args[0]) != args[0]:
					if file != "" {
						return exit.Usagef("--bootstrap is for a target; the process at %s has its own", args[0])
					}
					flags.process.Address = args[0]
					examine = func(ctx context.Context) (*doctor.Report, error) { return doctor.Process(ctx, flags.process, target) }
				case target != "":
					return exit.Usagef("%q is not the address of a process: want HOST:PORT", args[0])
				default:
					examine = func(ctx context.Context) (*doctor.Report, error) {
						return doctor.Channel(ctx, file, doctor.Target(args[0])), nil
					}
				}
			}
			return show(cmd, &flags, func(ctx context.Context) (*doctor.Report, error) {
				report, err := examine(ctx)
				if err == nil && report.Failed() {
					err = &exit.Error{Code: exit.No}
				}
				return report, err
			})
		},
	}
	flags.addConnection(cmd)
	cmdline.File(cmd, &file, "bootstrap", "the bootstrap file of the target's program (default that of GRPC_XDS_BOOTSTRAP)")
	// A control plane has 15 s to send a resource before clients take it for missing.
	cmdline.Period(cmd, &flags.timeout, "timeout", 20*time.Second, "how long to wait for all answers")
	return cmd
}
