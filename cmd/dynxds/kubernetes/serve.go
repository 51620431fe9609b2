package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/signal"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/dynxds/dynxds/cmd/dynxds/internal/repeatlog"
	"github.com/dynxds/dynxds/cmd/dynxds/internal/serve"
	"github.com/dynxds/dynxds/cmd/dynxds/internal/site"
	"github.com/dynxds/dynxds/cmd/dynxds/kubernetes/internal/cluster"
	"github.com/dynxds/dynxds/cmd/dynxds/kubernetes/internal/identity"
	"github.com/dynxds/dynxds/cmd/dynxds/kubernetes/internal/routestatus"
	"github.com/dynxds/dynxds/mesh/controlplane"
)

const serveHelp = `Serves xDS (state of the world and delta) from a Kubernetes cluster: Services and
their EndpointSlices, and GRPCRoutes and HTTPRoutes whose parents are Services, if
the cluster has these resources. Clients dial

  xds:///NAME.NAMESPACE, xds:///NAME.NAMESPACE.svc.cluster.local, or either with
  :PORT, a number or a name; xds:///NAME within the client's namespace

docs/tasks/kubernetes.md says how to install it, and docs/reference/kubernetes.md what
of Kubernetes counts.

In a pod it uses the pod's service account; elsewhere, or with --kubeconfig, a
kubeconfig as kubectl does. While the API server does not answer, clients are served
what was known last.

SIGTERM and SIGINT drain: health is NOT_SERVING, streams end so that clients use
another replica, and what is left after --grace is cut off.`

// flags are those of serve.
type flags struct {
	opts                site.Options
	kubeconfig          string
	namespaces          []string
	domain              string
	startTimeout        time.Duration
	audience            string
	leaseNamespace      string
	leaseDuration       time.Duration
	anonymous           bool
	logFormat, logLevel string
}

func newServe() *cobra.Command {
	var f flags
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run a control plane from what a Kubernetes cluster has",
		Long:  serveHelp,
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			log, err := newLog(cmd.ErrOrStderr(), f.logFormat, f.logLevel)
			if err != nil {
				return err
			}
			klog.SetSlogLogger(log) // what client-go says, for the whole process
			return f.run(cmd.Context(), log)
		},
	}
	set := cmd.Flags()
	set.StringVar(&f.kubeconfig, "kubeconfig", "", "kubeconfig file; by default the pod's service account, or else what kubectl uses")
	set.StringSliceVar(&f.namespaces, "namespace", nil, "namespaces whose objects are read; by default all")
	set.StringVar(&f.domain, "cluster-domain", "cluster.local", "the cluster's DNS domain")
	set.DurationVar(&f.startTimeout, "start-timeout", time.Minute, "how long to wait for the API server at the start")
	set.StringVar(&f.audience, "audience", "dynxds", "the audience that clients' tokens have to have")
	set.BoolVar(&f.anonymous, "anonymous", false, "also serve clients without a token or certificate, which are who they say")
	set.StringVar(&f.leaseNamespace, "lease-namespace", os.Getenv("POD_NAMESPACE"), "namespace of the Lease whose holder writes the status of routes; by default POD_NAMESPACE of the environment")
	set.DurationVar(&f.leaseDuration, "lease-duration", 15*time.Second, "how long after the holder of the Lease has died another replica takes over")
	set.StringVar(&f.opts.Serve.Listen, "listen", ":18000", "TCP address to listen on")
	set.StringVar(&f.opts.Serve.Cert, "tls-cert", "", "PEM file with the server's certificate, which is read again when it changes; without it there is no TLS")
	set.StringVar(&f.opts.Serve.Key, "tls-key", "", "PEM file with the key of the certificate")
	set.StringVar(&f.opts.Serve.ClientCA, "client-ca", "", "PEM file with certificate authorities; clients then need a certificate from one of them")
	set.StringVar(&f.opts.Serve.MetricsAddress, "metrics", "", "serve metrics for Prometheus, and /healthz, at this address, HOST:PORT")
	set.StringVar(&f.opts.Serve.Admin, "admin", "", "serve pages for \"dynxds clients\", metrics and health, at this address, HOST:PORT")
	set.StringVar(&f.opts.Page, "page", "", "serve a status page, which has no login, at this address, HOST:PORT")
	set.StringVar(&f.opts.Authority, "authority", "", "also serve xdstp: names under this authority, with dynamic parameters and DPDS")
	set.DurationVar(&f.opts.RemovalDelay, "removal-delay", controlplane.DefaultRemovalDelay, "how long clients keep a deleted resource, unless they unsubscribe")
	set.DurationVar(&f.opts.Serve.Grace, "grace", serve.DefaultGrace, "how long a drain waits for RPCs in flight")
	set.StringVar(&f.logFormat, "log-format", "text", "text or json")
	set.StringVar(&f.logLevel, "log-level", "info", "debug, info, warn or error")
	return cmd
}

// run serves until the context ends.
func (f *flags) run(ctx context.Context, log *slog.Logger) error {
	if f.opts.Serve.Cert == "" && !f.anonymous {
		return errors.New("clients send tokens only over TLS: add --tls-cert and --tls-key, or --anonymous to serve everybody")
	}
	config, where, err := configOf(f.kubeconfig)
	if err != nil {
		return err
	}
	clients, err := cluster.NewClients(config)
	if err != nil {
		return err
	}
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)
	opts := f.opts
	var places atomic.Pointer[cluster.Source]
	var writing sync.WaitGroup
	refusals := routestatus.NewRefusals()
	opts.OnNACK = refusals.Note
	opts.OnServer = refusals.Follow
	defer writing.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	opts.Serve.Log, opts.Place, opts.Dir = log, "cluster", where
	access := make(chan struct{}, 1)
	opts.BindLocators, opts.Reauthorize = true, access
	opts.Open = func(ctx context.Context, log *slog.Logger) (site.Documents, error) {
		starting, cancel := context.WithTimeout(ctx, f.startTimeout)
		defer cancel()
		source, err := cluster.Open(starting, cluster.Options{
			Clients: clients, Namespaces: f.namespaces, Domain: strings.Trim(f.domain, "."), Reload: hangups, Log: log,
			AccessChanged: func() {
				select {
				case access <- struct{}{}:
				default:
				}
			},
		})
		if err != nil {
			return nil, err
		}
		places.Store(source)
		if f.leaseNamespace == "" {
			log.Warn("the status of routes is not written, as the namespace for the Lease is not known: add --lease-namespace")
			return source, nil
		}
		host, _ := os.Hostname()
		writing.Go(func() {
			routestatus.Run(ctx, routestatus.Options{
				Typed: clients.Typed, Dynamic: clients.Dynamic, Source: source, Namespace: f.leaseNamespace,
				Identity: fmt.Sprintf("%s-%d-%x", host, os.Getpid(), rand.Uint64()), LeaseDuration: f.leaseDuration, Refusals: refusals, Log: log,
			})
		})
		return source, nil
	}
	// No client is served before there is a source.
	opts.Identify = identity.New(identity.Options{
		Tokens: identity.NewTokens(clients.Typed.AuthenticationV1().TokenReviews(), f.audience), Anonymous: f.anonymous,
		ZoneOf: func(node string) string { return places.Load().ZoneOf(node) },
	}).Identify
	opts.Authorize = func(ctx context.Context, node *corepb.Node, typeURL, name string) error {
		return identity.Authorizer(places.Load())(ctx, node, typeURL, name)
	}
	return site.Run(ctx, opts)
}

// configOf returns how to reach the API server, and where that is.
func configOf(kubeconfig string) (config *rest.Config, where string, err error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = kubeconfig
	// Without a kubeconfig it is the configuration of the pod.
	config, err = clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{}).ClientConfig()
	if err != nil {
		return nil, "", fmt.Errorf("no API server is known: %w; name a kubeconfig with --kubeconfig, or run in a pod", err)
	}
	config.UserAgent = "dynxds-kubernetes"
	return config, config.Host, nil
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
	}
	return nil, fmt.Errorf("--log-format %q: want text or json", format)
}
