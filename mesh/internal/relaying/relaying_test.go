package relaying_test

import (
	"context"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/dynxds/dynxds/internal/livestate"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/internal/cmdtest"
	"github.com/dynxds/dynxds/mesh/internal/relaying"
	"github.com/dynxds/dynxds/mesh/internal/serve"
	"github.com/dynxds/dynxds/mesh/meshtest"
	"github.com/dynxds/dynxds/mesh/relay"
	"github.com/dynxds/dynxds/testutils"
	"github.com/dynxds/dynxds/xdsclient"
	"github.com/dynxds/dynxds/xdsclient/bootstrap"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// options are those of the command with this bootstrap.
func options(t *testing.T, content []byte) relaying.Options {
	t.Helper()
	path := filepath.Join(t.TempDir(), "bootstrap.json")
	xdstest.NoError(t, os.WriteFile(path, content, 0o600))
	return relaying.Options{
		Bootstrap: path, Relay: relay.Options{OneGroup: true, MaxGroups: 10, MaxGroupSubscriptions: 10},
		Serve: serve.Options{Listen: "localhost:0", MaxSubscriptions: 10},
	}
}

// watcher passes on what it gets.
type watcher chan any

func (w watcher) ResourceChanged(value any, _ error, done func()) {
	if value != nil {
		w <- value
	}
	done()
}
func (w watcher) AmbientError(_ error, done func()) { done() }

// failures passes on the errors that it gets.
type failures chan error

func (f failures) ResourceChanged(_ any, err error, done func()) {
	if err != nil {
		f <- err
	}
	done()
}
func (f failures) AmbientError(_ error, done func()) { done() }

// run runs a relay until it is drained, which ended reports, and returns its address.
func run(t *testing.T, opts relaying.Options) (address net.Addr, drain context.CancelFunc, ended <-chan error) {
	t.Helper()
	ctx, drain := context.WithCancel(testutils.Context(t))
	ready, result := make(chan net.Addr, 1), make(chan error, 1)
	opts.Ready = func(a net.Addr) { ready <- a }
	go func() { result <- relaying.Run(ctx, opts) }()
	select {
	case address = <-ready:
	case err := <-result:
		t.Fatal(err)
	}
	return address, drain, result
}

// Clients reach the relay at a TCP address or at a socket, and a socket that a dead process left does
// not matter.
func TestRun(t *testing.T) {
	t.Parallel()
	plane := meshtest.StartServer(t)
	plane.Set(t, xdsmsg.EDSCluster("c", ""))
	socket := filepath.Join(t.TempDir(), "relay.sock")
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	xdstest.NoError(t, err)
	dead.SetUnlinkOnClose(false)
	dead.Close()
	for _, listen := range []string{"localhost:0", "unix:" + socket, "unix://" + socket} {
		opts := options(t, plane.Bootstrap("relay"))
		opts.Serve.Listen = listen
		address, drain, ended := run(t, opts)
		uri := address.String()
		if address.Network() == "unix" {
			uri = "unix://" + uri
		}
		cfg, err := bootstrap.Parse("test", testutils.Bootstrap("client", uri))
		xdstest.NoError(t, err)
		client, err := xdsclient.New(cfg, xdsclient.Options{})
		xdstest.NoError(t, err)
		got := make(watcher, 10)
		client.Watch(xdsresource.ClusterType, "c", got)
		select {
		case <-got:
		case <-testutils.Context(t).Done():
			t.Errorf("%s: the client got nothing", listen)
		}
		client.Close()
		drain()
		xdstest.NoError(t, <-ended)
	}
}

// Errors name the flag.
func TestRunRefuses(t *testing.T) {
	t.Parallel()
	valid := testutils.Bootstrap("relay", "localhost:1")
	for want, change := range map[string]func(*relaying.Options){
		"--bootstrap is missing":       func(o *relaying.Options) { o.Bootstrap = "" },
		"--bootstrap: open":            func(o *relaying.Options) { o.Bootstrap += ".other" },
		"--bootstrap: xDS bootstrap":   func(o *relaying.Options) { o.Bootstrap = options(t, []byte("{}")).Bootstrap },
		"--access: open /no/such/file": func(o *relaying.Options) { o.Serve.AccessFile = "/no/such/file" },
		"a list of rules":              func(o *relaying.Options) { o.Serve.AccessFile = o.Bootstrap },
		"--tls-cert needs --tls-key":   func(o *relaying.Options) { o.Serve.Cert = "cert.pem" },
		"node.id of its bootstrap":     func(o *relaying.Options) { o.Bootstrap = options(t, testutils.Bootstrap("", "localhost:1")).Bootstrap },
		"--listen /no/such/relay.sock": func(o *relaying.Options) { o.Serve.Listen = "unix:/no/such/relay.sock" },
	} {
		opts := options(t, valid)
		change(&opts)
		cmdtest.ErrorHas(t, "Run", relaying.Run(testutils.Context(t), opts), want)
	}
}

// The pages of a relay have its metrics, and its clients, and say when its control plane is unreachable; so does a client.
func TestPages(t *testing.T) {
	t.Parallel()
	plane := meshtest.StartServer(t)
	var log xdstest.Log
	opts := options(t, plane.Bootstrap("relay"))
	opts.Serve.Admin, opts.Serve.Log = ":0", slog.New(slog.NewTextHandler(&log, nil))
	opts.Relay.AwayDelay = -1
	address, drain, ended := run(t, opts)
	_, url, _ := strings.Cut(log.String(), "url=")
	url, _, _ = strings.Cut(url, " ")
	for page, want := range map[string]string{
		"metrics": "\ndynxds_relay_upstream_unavailable_since_timestamp_seconds 0\n", "clients": `"clients":[]`, "healthz": "SERVING",
	} {
		if body := cmdtest.Get(t, url+page); !strings.Contains(body, want) || strings.Contains(body, "dynxds_controlplane_store") {
			t.Errorf("%s%s: %s, want %q and nothing of a store", url, page, body, want)
		}
	}
	plane.Stop()
	cfg, err := bootstrap.Parse("test", testutils.Bootstrap("client", address.String()))
	xdstest.NoError(t, err)
	client, err := xdsclient.New(cfg, xdsclient.Options{})
	xdstest.NoError(t, err)
	failed := make(failures, 1)
	client.Watch(xdsresource.ClusterType, "c", failed)
	select {
	case <-failed:
	case <-testutils.Context(t).Done():
		t.Fatal("the client does not hear that the control plane is unreachable")
	}
	if body := cmdtest.Get(t, url+"healthz"); !strings.HasPrefix(body, "SERVING\nthe control plane is unreachable since 2") {
		t.Errorf("/healthz is %q without a control plane", body)
	}
	cmdtest.Await(t, func() string { // an answer of the page is as old as a second
		if body := cmdtest.Get(t, url+"clients"); !strings.Contains(body, `"upstream":"the control plane is unreachable since 2`) {
			return "the clients without a control plane are " + body
		}
		return ""
	})
	if s := livestate.Take(testutils.Context(t), livestate.OfClient(client.Dump())); !s.Servers[0].Connected || s.Servers[0].BehindSince.IsZero() {
		t.Errorf("the client's servers are %+v", s.Servers)
	}
	client.Close()
	drain()
	xdstest.NoError(t, <-ended)
}
