package main

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/dynxds/dynxds/mesh/controlplane"
	"github.com/dynxds/dynxds/mesh/internal/cmdline"
	"github.com/dynxds/dynxds/mesh/internal/exit"
	"github.com/dynxds/dynxds/mesh/internal/site"
	"github.com/dynxds/dynxds/mesh/kubernetes/internal/cluster"
	"github.com/dynxds/dynxds/mesh/kubernetes/internal/identity"
	"github.com/dynxds/dynxds/mesh/kubernetes/internal/routestatus"
)

const serveHelp = `Serves xDS (state of the world and delta) from a Kubernetes cluster: Services and
their EndpointSlices, and GRPCRoutes and HTTPRoutes whose parents are Services, and
MeshHTTPRoutes, if the cluster has these resources. Clients dial

  xds:///NAME.NAMESPACE, xds:///NAME.NAMESPACE.svc.cluster.local, or either with
  :PORT, a number or a name; xds:///NAME within the client's namespace

docs/tasks/kubernetes.md says how to install it, and what
of Kubernetes counts.

In a pod it uses the pod's service account; elsewhere, or with --kubeconfig, a
kubeconfig as kubectl does. While the API server does not answer, clients are served
what was known last.

SIGTERM and SIGINT drain: health is NOT_SERVING, streams end so that clients use
another replica, and what is left after --grace is cut off.`

// flags are those of serve. Other commands have those of clusterFlags.
type flags struct {
	opts                site.Options
	kubeconfig          string
	as                  string // the user in whose place doctor asks
	namespaces          []string
	domain              string
	startTimeout        time.Duration
	audience            string
	tokenReviews        int
	leaseNamespace      string
	leaseDuration       time.Duration
	anonymous           bool
	trustDomain         string
	logFormat, logLevel string
}

func newServe(setLog func(*slog.Logger)) *cobra.Command {
	var f flags
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run a control plane from what a Kubernetes cluster has",
		Long:  serveHelp,
		Args:  cmdline.NoArgument,
		RunE: func(cmd *cobra.Command, _ []string) error {
			log := cmdline.NewLog(cmd.ErrOrStderr(), f.logFormat, f.logLevel)
			setLog(log)
			return f.run(cmd.Context(), log)
		},
	}
	f.clusterFlags(cmd)
	set := cmd.Flags()
	set.StringVar(&f.audience, "audience", "dynxds", "the audience that clients' tokens have to have")
	cmdline.Limit(cmd, &f.tokenReviews, "token-reviews", identity.DefaultRate, "how many TokenReviews a second the API server is asked for; the clients of one host may have a quarter of them")
	set.BoolVar(&f.anonymous, "anonymous", false, "also serve clients without a token or certificate, which are who they say")
	set.StringVar(&f.trustDomain, "trust-domain", "", "the trust domain that clients' certificates have to be of; by default any, as if all authorities in --client-ca were one")
	set.StringVar(&f.leaseNamespace, "lease-namespace", os.Getenv("POD_NAMESPACE"), "namespace of the Lease whose holder writes the status of routes; by default POD_NAMESPACE of the environment")
	cmdline.Period(cmd, &f.leaseDuration, "lease-duration", 15*time.Second, "how long after the holder of the Lease has died another replica takes over")
	cmdline.ServerFlags(cmd, &f.opts.Serve, ":18000")
	cmdline.Address(cmd, &f.opts.Page, "page", "serve a status page, which has no login, at this address, HOST:PORT")
	set.StringVar(&f.opts.Authority, "authority", "", "also serve xdstp: names under this authority, with dynamic parameters and DPDS")
	cmdline.Delay(cmd, &f.opts.RemovalDelay, "removal-delay", controlplane.DefaultRemovalDelay, 0, "how long clients keep a deleted resource, unless they unsubscribe")
	cmdline.LogFlags(cmd, &f.logFormat, &f.logLevel)
	return cmd
}

// run serves until the context ends.
func (f *flags) run(ctx context.Context, log *slog.Logger) error {
	if f.opts.Serve.Cert == "" && !f.anonymous {
		return exit.Usagef("clients send tokens only over TLS: add --tls-cert and --tls-key, or --anonymous to serve everybody")
	}
	if f.leaseDuration < time.Second {
		return exit.Usagef("--lease-duration is %v, and a Lease lasts for whole seconds: write 1s or more", f.leaseDuration)
	}
	clients, where, err := f.clients()
	if err != nil {
		return err
	}
	source, err := f.open(ctx, cluster.Options{Clients: clients, Log: log})
	if err != nil {
		return err
	}
	signal.Ignore(syscall.SIGHUP) // there is nothing to read again
	opts := f.opts
	opts.Documents, opts.Place, opts.Dir = source, "cluster", where
	opts.Serve.Log = log
	// They need no token, and tell about other clients' connections.
	opts.Serve.NoChannelz, opts.Serve.NoReflection = true, true
	opts.Identify = identity.Verifier{
		Tokens: identity.NewTokens(clients.Typed.AuthenticationV1().TokenReviews(), f.audience, f.tokenReviews), Anonymous: f.anonymous, ZoneOf: source.ZoneOf,
		TrustDomain: f.trustDomain,
	}.Identify
	opts.BindLocators, opts.Authorize, opts.Reauthorize = true, source.Authorize, source.AccessChanged()
	host, _ := os.Hostname()
	status := routestatus.New(routestatus.Options{
		Typed: clients.Typed, Dynamic: clients.Dynamic, Source: source, Namespace: f.leaseNamespace,
		Identity: fmt.Sprintf("%s-%d-%x", host, os.Getpid(), rand.Uint64()), LeaseDuration: f.leaseDuration, Log: log,
	})
	opts.OnNACK, opts.OnLeftOut = status.OnNACK, status.OnLeftOut
	ctx, stop := context.WithCancel(ctx)
	var writing sync.WaitGroup
	defer writing.Wait()
	defer stop()
	if f.leaseNamespace == "" {
		log.Warn("the status of routes is not written, as the namespace for the Lease is not known: add --lease-namespace")
	} else {
		writing.Go(func() { status.Run(ctx) })
	}
	return site.Run(ctx, opts)
}
