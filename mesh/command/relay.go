package command

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/dynxds/dynxds/internal/bounds"
	"github.com/dynxds/dynxds/mesh/controlplane"
	"github.com/dynxds/dynxds/mesh/internal/admission"
	"github.com/dynxds/dynxds/mesh/internal/cmdline"
	"github.com/dynxds/dynxds/mesh/internal/exit"
	"github.com/dynxds/dynxds/mesh/internal/metrics"
	"github.com/dynxds/dynxds/mesh/internal/serve"
	"github.com/dynxds/dynxds/mesh/relay"
	"github.com/dynxds/dynxds/xdsclient/bootstrap"
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
		of            relayed
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
			of.serve.Log, of.relay.Log = log, log
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
			if err := of.read(); err != nil {
				return exit.With(exit.Usage, err)
			}
			return of.run(cmd.Context())
		},
	}
	serverFlags(cmd, &of.serve, "localhost:18001", serve.DefaultRelayAdmin)
	f := cmd.Flags()
	r := &of.relay
	f.StringVar(&of.bootstrap, "bootstrap", "", "bootstrap file with the management servers and the node of the relay (required)")
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
	of.serve.MaxSubscriptions = controlplane.DefaultMaxSubscriptions / 2
	f.Lookup("max-subscriptions").DefValue = strconv.Itoa(of.serve.MaxSubscriptions)
	cmdline.LogFlags(cmd, &format, &level)
	return cmd
}

// relayed is what to relay, and how to serve it.
type relayed struct {
	// bootstrap is the path of the file.
	bootstrap string
	relay     relay.Options
	serve     serve.Options
}

// read completes the options of the relay with what is in files, and in the options of the server.
func (x *relayed) read() (err error) {
	if x.bootstrap == "" {
		return fmt.Errorf("--bootstrap is missing: the file with the management servers, as clients have it; see dynxds bootstrap")
	}
	content, err := os.ReadFile(x.bootstrap)
	if err == nil {
		x.relay.Bootstrap, err = bootstrap.Parse(x.bootstrap, content)
	}
	if err != nil {
		return fmt.Errorf("--bootstrap: %w", err)
	}
	server := &x.relay.Server
	server.WrapResources, server.MaxSubscriptions, server.MaxStreams = true, x.serve.MaxSubscriptions, x.serve.MaxStreams
	// Each stream upstream has a connection of its own; some descriptors are left for pages and files.
	descriptors := admission.Descriptors()
	x.serve.Connections = min(bounds.Connections, descriptors/2)
	x.relay.MaxGroups = min(cmp.Or(x.relay.MaxGroups, relay.DefaultMaxGroups), descriptors/4)
	x.relay.Access, err = x.serve.Access()
	return err
}

// run runs the relay until the context ends, and then drains.
func (x *relayed) run(ctx context.Context) error {
	plane := metrics.New()
	x.relay.Server.OnACK, x.relay.Server.OnRefused = plane.ACKed, plane.Limited
	x.relay.Server.OnNACK = func(r controlplane.Rejection) {
		serve.LogRejection(x.serve.Log, r)
		plane.NACKed(r)
	}
	r, err := relay.New(x.relay)
	if err != nil {
		return exit.With(exit.Usage, err)
	}
	defer r.Close()
	plane.AddRelay(r.Stats)
	x.serve.Metrics = plane
	x.serve.Upstream = func() string {
		s := r.Stats()
		if s.Unreachable == 0 {
			return ""
		}
		return "the control plane is unreachable since " + s.UnreachableSince.UTC().Format(time.RFC3339) + "; clients are served from the cache"
	}
	server, err := serve.New(r, x.serve)
	if err != nil {
		return err
	}
	server.SetReady(true)
	x.serve.Log.Info("relaying", "address", server.Addr().String(), "bootstrap", x.bootstrap, "one_group", x.relay.OneGroup)
	return server.Serve(ctx)
}
