package command

import (
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/dynxds/dynxds/mesh/controlplane"
	"github.com/dynxds/dynxds/mesh/internal/cmdline"
	"github.com/dynxds/dynxds/mesh/internal/exit"
	"github.com/dynxds/dynxds/mesh/internal/serve"
	"github.com/dynxds/dynxds/mesh/internal/site"
	"github.com/dynxds/dynxds/mesh/internal/store"
)

const serveHelp = `Serves xDS (state of the world and delta) from a folder of YAML or JSON files:
services with their endpoints, MeshHTTPRoute policies, and xDS resources
as they are. docs/reference/folder.md has their format.

With --store the files are in etcd instead of a folder, from where any number of
replicas of this command read them (docs/tasks/store.md); "dynxds apply" writes them. A
change is served as soon as it is there. While a file is faulty, or etcd does not
answer, replicas go on with what they serve. One that starts then is not ready: its
health is NOT_SERVING, /healthz and the log say why, and clients go to another one.

The folder is checked for changes every --poll, and at once on SIGHUP. A change is
validated as a whole and published at once, and only what changed is sent. A folder
that has become faulty, or has lost all its documents, changes nothing: the log says
what is wrong, and where. So does one with resources that clients would reject, by
the decoder of dynxds clients, unless --permissive is given. What withdraws more than a third of the services waits for
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
		stored store.Options
		format string
		level  string
	)
	cmd := &cobra.Command{
		Use:   "serve {DIR | --store URL}",
		Short: "Run a control plane from a folder of services and policies, or from etcd",
		Long:  serveHelp,
		Example: "  dynxds serve --listen localhost:18000 examples/mesh/config\n" +
			"  dynxds serve --store etcd://localhost:2379/mesh",

		ValidArgsFunction: oneFolder,
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			if opts.Dir, opts.Store, err = folderOrStore(cmd, args, &stored); err != nil {
				return err
			}
			hangups := make(chan os.Signal, 1)
			signal.Notify(hangups, syscall.SIGHUP)
			defer signal.Stop(hangups)
			opts.Serve.Log, opts.Reload = cmdline.NewLog(cmd.ErrOrStderr(), format, level), hangups
			return site.Run(cmd.Context(), opts)
		},
	}
	f := cmd.Flags()
	serverFlags(cmd, &opts.Serve, "localhost:18000", serve.DefaultAdmin)
	f.StringVar(&opts.Authority, "authority", "", "also serve xdstp: names under this authority, with dynamic parameters and DPDS")
	f.BoolVar(&opts.NoSources, "no-sources", false, "do not say in resources which files and lines they are made from")
	f.BoolVar(&opts.Permissive, "permissive", false, "also publish resources that clients of dynxds would reject, for clients of another kind")
	cmdline.Period(cmd, &opts.Poll, "poll", site.DefaultPoll, "how often to check a folder for changes; SIGHUP checks at once")
	cmdline.Delay(cmd, &opts.RemovalDelay, "removal-delay", controlplane.DefaultRemovalDelay, 0,
		"how long clients keep a deleted resource, unless they unsubscribe")
	cmdline.Delay(cmd, &opts.WithdrawalDelay, "withdrawal-delay", site.DefaultWithdrawalDelay, 0,
		"how long a change waits that withdraws more than a third of the services, in case it is half of one; 0: not at all")
	storeFlags(cmd, &stored)
	pageFlag(cmd, &opts.Page)
	cmdline.LogFlags(cmd, &format, &level)
	return cmd
}

// folderOrStore returns the one of the two that the command line names, or the store of the environment.
func folderOrStore(cmd *cobra.Command, args []string, stored *store.Options) (dir string, _ *store.Options, err error) {
	switch {
	case len(args) == 1 && !cmd.Flags().Changed("store"):
		cmd.Flags().Visit(func(f *pflag.Flag) {
			if strings.HasPrefix(f.Name, "store-") {
				err = exit.Usagef("--%s is for --store; the folder %s does not need it: leave it out", f.Name, args[0])
			}
		})
		return args[0], nil, err
	case len(args) == 0 && stored.URL != "":
		if cmd.Flags().Changed("poll") {
			err = exit.Usagef("--poll is for a folder; a store tells of its changes: leave it out")
		}
		return "", stored, err
	default:
		return "", nil, exit.Usagef("want a folder or a store, one of them: %s", cmd.UseLine())
	}
}

// serverFlags adds the flags of a server. listen and admin are defaults.
func serverFlags(cmd *cobra.Command, opts *serve.Options, listen, admin string) {
	f := cmd.Flags()
	cmdline.ServerFlags(cmd, opts, listen)
	f.Lookup("admin").NoOptDefVal = admin
	f.Lookup("admin").Usage += "; without one, on " + admin
	cmdline.File(cmd, &opts.AccessFile, "access", "JSON file with the names that each client may subscribe to, and the nodes that it may be; without it, all clients may subscribe to everything, as any node")
	f.BoolVar(&opts.NoChannelz, "no-channelz", false, "do not serve channelz")
	f.BoolVar(&opts.NoReflection, "no-reflection", false, "do not serve reflection")
}
