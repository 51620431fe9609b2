package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/dynxds/dynxds/mesh/internal/cmdline"
	"github.com/dynxds/dynxds/mesh/internal/exit"
	"github.com/dynxds/dynxds/mesh/kubernetes/internal/cluster"
)

// clusterFlags adds the flags of what is read, and from where.
func (f *flags) clusterFlags(cmd *cobra.Command) {
	cmdline.File(cmd, &f.kubeconfig, "kubeconfig", "kubeconfig file; by default the pod's service account, or else what kubectl uses")
	set := cmd.Flags()
	cmdline.Names(cmd, &f.namespaces, "namespace", "namespaces whose objects are read; by default all")
	set.StringVar(&f.domain, "cluster-domain", "cluster.local", "the cluster's DNS domain")
	cmdline.Period(cmd, &f.startTimeout, "start-timeout", time.Minute, "how long to wait for the API server")
}

// config is that of a kubeconfig. Without one it is that of the pod.
func (f *flags) config() clientcmd.ClientConfig {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = f.kubeconfig
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{})
}

// clients returns clients of the API server, and where that is.
func (f *flags) clients() (clients *cluster.Clients, where string, err error) {
	config, err := f.config().ClientConfig()
	if err != nil {
		return nil, "", exit.With(exit.Unreachable, fmt.Errorf("no API server is known: %w; name a kubeconfig with --kubeconfig, or run in a pod", err))
	}
	config.UserAgent, config.Impersonate.UserName = "dynxds-kubernetes", f.as
	// client-go's own limit is 5 requests a second. After a restart, the tokens of all clients are reviewed at once: package
	// identity has a rate for these, and the API server has its own limits.
	config.QPS = -1
	clients, err = cluster.NewClients(config)
	return clients, config.Host, err
}

// open waits until everything is read, for as long as the flags say.
func (f *flags) open(ctx context.Context, opts cluster.Options) (*cluster.Source, error) {
	opts.Namespaces, opts.Domain = f.namespaces, strings.Trim(f.domain, ".")
	ctx, cancel := context.WithTimeout(ctx, f.startTimeout)
	defer cancel()
	source, err := cluster.Open(ctx, opts)
	if errors.Is(err, cluster.ErrNoAnswer) {
		err = exit.With(exit.Unreachable, err)
	}
	return source, err
}
