package command

import (
	"os"
	"os/signal"
	"strconv"
	"sync"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/dynxds/dynxds/mesh/controlplane"
	"github.com/dynxds/dynxds/mesh/internal/cmdline"
	"github.com/dynxds/dynxds/mesh/internal/relaying"
	"github.com/dynxds/dynxds/mesh/internal/serve"
	"github.com/dynxds/dynxds/mesh/relay"
)

const relayHelp = `Runs a caching xDS proxy: clients in any language subscribe to it (state of the
world or delta), and it subscribes to the management servers of its bootstrap, once
for all clients that want the same resource. docs/tasks/relay.md describes it, and shows
it in a pod.

Clients whose nodes differ only in their ids are one node for the control plane. With
--one-group all clients are, as in a pod: one stream, whoever asks.

While the control plane is unreachable, clients get what the relay has. --admin and
--metrics are those of "dynxds serve".

SIGTERM and SIGINT drain: health is NOT_SERVING, streams end so that clients use
another server, and what is left after --grace is cut off.`

func newRelay() *cobra.Command {
	var (
		opts          relaying.Options
		format, level string
	)
	cmd := &cobra.Command{
		Use:     "relay --bootstrap FILE",
		Short:   "Run a caching xDS proxy between clients and their control plane",
		Long:    relayHelp,
		Example: "  dynxds relay --listen unix:/run/xds/relay.sock --bootstrap /etc/xds/bootstrap.json --one-group",
		Args:    cmdline.NoArgument,
		RunE: func(cmd *cobra.Command, _ []string) error {
			log := cmdline.NewLog(cmd.ErrOrStderr(), format, level)
			opts.Serve.Log = log
			defer xdsLog.passTo(log)()
			hangups := make(chan os.Signal, 1)
			signal.Notify(hangups, syscall.SIGHUP) // which would end the process otherwise
			var warning sync.WaitGroup
			warning.Go(func() {
				for range hangups {
					log.Warn("SIGHUP is ignored: the relay reads --bootstrap and --access when it starts, and certificates every minute")
				}
			})
			defer warning.Wait()
			defer close(hangups)
			defer signal.Stop(hangups)
			return relaying.Run(cmd.Context(), opts)
		},
	}
	serverFlags(cmd, &opts.Serve, "localhost:18001", serve.DefaultRelayAdmin)
	f := cmd.Flags()
	r := &opts.Relay
	f.StringVar(&opts.Bootstrap, "bootstrap", "", "bootstrap file with the management servers and the node of the relay (required)")
	f.BoolVar(&r.OneGroup, "one-group", false, "have all clients be one node for the control plane, that of the bootstrap, on one stream")
	// Zero means the default in the options, and less than zero none.
	const none = -1
	cmdline.Delay(cmd, &r.AwayDelay, "away-delay", relay.DefaultAwayDelay, none, "how long to wait for an unreachable control plane before sending errors for resources that the relay does not have")
	cmdline.Delay(cmd, &r.Linger, "linger", relay.DefaultLinger, none, "how long to stay subscribed to a resource after its last client has left")
	cmdline.Delay(cmd, &r.Server.RemovalDelay, "removal-delay", 0, none, "how long clients keep a resource after the control plane has deleted it, unless they unsubscribe")
	cmdline.Limit(cmd, &r.MaxGroups, "max-upstreams", relay.DefaultMaxGroups, "how many streams to the control plane there may be")
	cmdline.Limit(cmd, &r.MaxGroupSubscriptions, "max-group-subscriptions", controlplane.DefaultMaxSubscriptions,
		"how many resources the relay may subscribe to on a stream to the control plane, for all clients that share it")
	// A client has half of what its group has, so that no client uses up what the control plane allows the relay.
	opts.Serve.MaxSubscriptions = controlplane.DefaultMaxSubscriptions / 2
	f.Lookup("max-subscriptions").DefValue = strconv.Itoa(opts.Serve.MaxSubscriptions)
	cmdline.LogFlags(cmd, &format, &level)
	return cmd
}
