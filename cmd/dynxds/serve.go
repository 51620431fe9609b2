package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/dynxds/dynxds/cmd/dynxds/internal/repeatlog"
	"github.com/dynxds/dynxds/cmd/dynxds/internal/serve"
	"github.com/dynxds/dynxds/cmd/dynxds/internal/site"
	"github.com/dynxds/dynxds/internal/bounds"
	"github.com/dynxds/dynxds/mesh/controlplane"
)

const serveHelp = `Serves xDS (state of the world and delta) from a folder of YAML or JSON files:
services with their endpoints, MeshHTTPRoute policies, denials, and xDS resources
as they are. docs/reference/folder.md has their format.

With --store the files are in etcd instead of a folder, from where any number of
replicas of this command read them (docs/tasks/store.md). A change is served as soon as
it is there. While a file is faulty, all replicas serve what was good last, and no
change takes effect. While etcd does not answer, clients are served what was read
last; with --last-good, a replica can even start.

The folder is checked for changes every --poll, and at once on SIGHUP. A change is
validated as a whole and published at once, and only what changed is sent. A folder
that has become faulty, or has lost all its documents, changes nothing: the log says
what is wrong, and where. What withdraws more than a third of the services waits for
--withdrawal-delay. A server that starts has nothing to compare with: it serves what
the folder has.

--page shows a status page (package statuspage) in a browser: the clients, what each of
them has ACKed and NACKed, and the resources that are served. It is on loopback, unless
the flag names another host, and has no login. --admin is the same for commands:
"dynxds clients" asks there what clients have accepted and rejected. It also has
metrics for Prometheus (/metrics) and /healthz, which --metrics serves without the rest;
gRPC's health service is on --listen.

SIGTERM and SIGINT drain: health is NOT_SERVING, streams end so that clients use
another server, and what is left after --grace is cut off.`

func newServe() *cobra.Command {
	var (
		opts   site.Options
		stored site.Stored
		format string
		level  string
	)
	cmd := &cobra.Command{
		Use:   "serve {DIR | --store URL}",
		Short: "Run a control plane from a folder of services and policies, or from etcd",
		Long:  serveHelp,
		Example: "  dynxds serve --listen localhost:18000 examples/mesh/config\n" +
			"  dynxds serve --store etcd://localhost:2379/mesh --last-good /var/lib/dynxds/mesh.json",

		ValidArgsFunction: oneFolder,
		RunE: func(cmd *cobra.Command, args []string) error {
			log, err := newLog(cmd.ErrOrStderr(), format, level)
			if err != nil {
				return err
			}
			if opts.Dir, opts.Store, err = folderOrStore(cmd, args, &stored); err != nil {
				return err
			}
			if opts.Poll == 0 {
				return errors.New("--poll is 0: want how often to check the folder for changes; SIGHUP checks at once")
			}
			if err := checkLimits(cmd); err != nil {
				return err
			}
			opts.Serve.Grace = graceOf(opts.Serve.Grace)
			hangups := make(chan os.Signal, 1)
			signal.Notify(hangups, syscall.SIGHUP)
			defer signal.Stop(hangups)
			opts.Serve.Log, opts.Reload = log, hangups
			return site.Run(cmd.Context(), opts)
		},
	}
	f := cmd.Flags()
	serverFlags(cmd, &opts.Serve, "localhost:18000", serve.DefaultAdmin)
	f.StringVar(&opts.Authority, "authority", "", "also serve xdstp: names under this authority, with dynamic parameters and DPDS")
	f.BoolVar(&opts.NoSources, "no-sources", false, "do not say in resources which files and lines they are made from")
	f.DurationVar(&opts.Poll, "poll", site.DefaultPoll, "how often to check a folder for changes")
	f.DurationVar(&opts.RemovalDelay, "removal-delay", controlplane.DefaultRemovalDelay,
		"how long clients keep a deleted resource, unless they unsubscribe")
	f.DurationVar(&opts.WithdrawalDelay, "withdrawal-delay", site.DefaultWithdrawalDelay,
		"how long a change waits that withdraws more than a third of the services, in case it is half of one; 0: not at all")
	storeFlags(cmd, &stored.Options)
	fileVar(cmd, &stored.LastGood, "last-good", "with --store: file that keeps what was published last, to start from while etcd does not answer")
	pageFlag(cmd, &opts.Page)
	logFlags(cmd, &format, &level)
	return cmd
}

// folderOrStore returns the one of the two that the command line names, or the store of the environment.
func folderOrStore(cmd *cobra.Command, args []string, stored *site.Stored) (dir string, _ *site.Stored, err error) {
	switch {
	case len(args) == 1 && !cmd.Flags().Changed("store"):
		if stored.LastGood != "" {
			return "", nil, errors.New("--last-good is for --store")
		}
		return args[0], nil, nil
	case len(args) == 0 && stored.URL != "":
		return "", stored, nil
	default:
		return "", nil, fmt.Errorf("want a folder or a store, one of them: %s", cmd.UseLine())
	}
}

// serverFlags adds the flags of a server. listen and admin are defaults.
func serverFlags(cmd *cobra.Command, opts *serve.Options, listen, admin string) {
	f := cmd.Flags()
	f.StringVar(&opts.Listen, "listen", listen, "TCP address to listen on, or unix:PATH")
	fileVar(cmd, &opts.Cert, "tls-cert", "PEM file with the server's certificate; without it there is no TLS")
	fileVar(cmd, &opts.Key, "tls-key", "PEM file with the key of the certificate")
	fileVar(cmd, &opts.ClientCA, "client-ca", "PEM file with certificate authorities; clients then need a certificate from one of them")
	f.StringVar(&opts.Admin, "admin", "", "serve pages with what clients hold and refuse (for dynxds clients), metrics and health, at --admin=HOST:PORT, or on "+admin+" if no address is given")
	f.Lookup("admin").NoOptDefVal = admin
	f.StringVar(&opts.MetricsAddress, "metrics", "", "serve metrics for Prometheus, and health, at this address, HOST:PORT")
	f.DurationVar(&opts.Grace, "grace", serve.DefaultGrace, "how long a drain waits for RPCs in flight")
	limitFlags(cmd, opts)
}

// limitFlags adds the flags of what clients may have, and make the server hold.
func limitFlags(cmd *cobra.Command, opts *serve.Options) {
	f := cmd.Flags()
	fileVar(cmd, &opts.AccessFile, "access", "JSON file with the names that each client may subscribe to, and the nodes that it may be; without it, all clients may subscribe to everything, as any node")
	l := &opts.Limits
	f.IntVar(&l.Streams, "max-streams", bounds.Streams, "how many streams clients may have together")
	f.IntVar(&opts.StreamsPerConnection, "max-streams-per-connection", bounds.StreamsPerConnection, "how many streams a connection may have")
	f.IntVar(&opts.MaxSubscriptions, "max-subscriptions", controlplane.DefaultMaxSubscriptions, "how many resources and types a stream may subscribe to")
	f.IntVar(&l.Subscriptions, "max-total-subscriptions", bounds.Subscriptions, "how many resources all streams may subscribe to together, each counted for each stream")
	f.IntVar(&l.Names, "max-names", bounds.Names, "how many distinct resources all streams may subscribe to together")
	f.IntVar(&l.NodeBytes, "max-node-bytes", bounds.NodeBytes, "how much memory the nodes of all clients may take")
	f.IntVar(&l.Versions, "max-versions", bounds.Versions, "how many versions that delta clients have from before, and that are not the server's, may wait to be compared")
	f.IntVar(&l.ReplyBytes, "max-reply-bytes", bounds.ReplyBytes, "how many bytes of responses may wait for clients to read them")
	f.IntVar(&opts.RequestBytes, "max-request-bytes", bounds.RequestBytes, "how large a request may be")
	f.Float64Var(&l.PeerShare, "peer-share", bounds.PeerShare, "the part of each limit that the clients of one host with one certificate identity may have, at most; 1 for all of it")
	f.BoolVar(&opts.NoChannelz, "no-channelz", false, "do not serve channelz")
	f.BoolVar(&opts.NoReflection, "no-reflection", false, "do not serve reflection")
}

// checkLimits returns an error for a limit of 0, which would be the default.
func checkLimits(cmd *cobra.Command) (err error) {
	for _, name := range []string{
		"max-streams", "max-streams-per-connection", "max-subscriptions", "max-total-subscriptions", "max-names",
		"max-node-bytes", "max-versions", "max-reply-bytes", "max-request-bytes", "peer-share",
	} {
		if f := cmd.Flag(name); f.Value.String() == "0" {
			err = errors.Join(err, fmt.Errorf("--%s is 0: want a positive number", name))
		}
	}
	return err
}

// graceOf returns the option for --grace. 0 is no time at all there, and the default here.
func graceOf(flag time.Duration) time.Duration { return cmp.Or(flag, time.Nanosecond) }

// logFlags adds the flags of a log.
func logFlags(cmd *cobra.Command, format, level *string) {
	f := cmd.Flags()
	f.StringVar(format, "log-format", "text", "text or json")
	f.StringVar(level, "log-level", "info", "debug, info, warn or error")
	completeWith(cmd, "log-format", "text", "json")
	completeWith(cmd, "log-level", "debug", "info", "warn", "error")
}

func newLog(w io.Writer, format, level string) (*slog.Logger, error) {
	var least slog.Level
	if err := least.UnmarshalText([]byte(level)); err != nil {
		return nil, fmt.Errorf("--log-level %q: want debug, info, warn or error", level)
	}
	opts := &slog.HandlerOptions{Level: least}
	switch format {
	case "text":
		return slog.New(repeatlog.NewHandler(slog.NewTextHandler(w, opts))), nil
	case "json":
		return slog.New(repeatlog.NewHandler(slog.NewJSONHandler(w, opts))), nil
	default:
		return nil, fmt.Errorf("--log-format %q: want text or json", format)
	}
}
