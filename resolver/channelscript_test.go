package resolver

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	xdscreds "google.golang.org/grpc/credentials/xds"
	grpcresolver "google.golang.org/grpc/resolver"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/internal/channels"
	"github.com/dynxds/dynxds/internal/grpcbridge"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
	"github.com/dynxds/dynxds/xdsclient"
	"github.com/dynxds/dynxds/xdsclient/bootstrap"
)

// channelScript is a channel that testdata/channel.txt leads. It is its own resolver, so that it can be idle at will.
type channelScript struct {
	*channelBuilder
	t         *testing.T
	endpoint  string
	creds     credentials.TransportCredentials
	dns, mesh *testutils.Backend
	cc        *grpc.ClientConn
	status    channels.Status // as of the last step
	begun     chan string     // who has answered the RPCs that have begun
	// What the process has logged of the target before.
	fallbacks, moves int

	// The bootstrap that the environment has, or the error in its place, and how often it was read. Guarded by State.
	bootstrap *bootstrap.Config
	err       error
	reads     int

	target grpcresolver.Target
	rcc    grpcresolver.ClientConn
	opts   grpcresolver.BuildOptions
	built  grpcresolver.Resolver // nil while the channel is idle
}

// TestChannelScript runs the cases of testdata/channel.txt, which describes its steps.
func TestChannelScript(t *testing.T) {
	t.Parallel()
	runScripts(t, "testdata/channel.txt", 24, func(t *testing.T) func([]string) string { return newChannelScript(t, ofChannel+".fake:80").run })
}

func newChannelScript(t *testing.T, endpoint string) *channelScript {
	s := &channelScript{
		channelBuilder: &channelBuilder{transport: newTransport(t)}, t: t, endpoint: endpoint, creds: insecure.NewCredentials(),
		dns: testutils.StartBackend(t, "dns"), mesh: testutils.StartBackend(t, "mesh"),
	}
	s.begun = make(chan string, 2)
	s.fallbacks, s.moves = s.lines()
	t.Cleanup(func() { names.forget(t) })
	read := func() (config *bootstrap.Config, err error) {
		s.Change(func() { config, err, s.reads = s.bootstrap, s.err, s.reads+1 })
		return config, err
	}
	s.builder = &builder{scheme: scheme, environment: true, config: read}
	return s
}

// Build implements resolver.Builder.
func (s *channelScript) Build(target grpcresolver.Target, cc grpcresolver.ClientConn, opts grpcresolver.BuildOptions) (grpcresolver.Resolver, error) {
	s.target, s.rcc, s.opts = target, cc, opts
	return s, s.wake()
}

func (s *channelScript) wake() (err error) {
	s.built, err = s.channelBuilder.Build(s.target, s.rcc, s.opts)
	return err
}

// ResolveNow implements resolver.Resolver.
func (s *channelScript) ResolveNow(grpcresolver.ResolveNowOptions) {}

// Close implements resolver.Resolver.
func (s *channelScript) Close() {
	if s.built != nil {
		s.built.Close()
		s.built = nil
	}
}

// run makes a step and returns what follows: another mode or reason, and, for "rpc", what becomes of an RPC.
func (s *channelScript) run(words []string) string {
	s.t.Helper()
	arg := words[len(words)-1]
	switch words[0] {
	case "endpoint":
		s.endpoint = arg
	case "credentials":
		creds, err := xdscreds.NewClientCredentials(xdscreds.ClientOptions{FallbackCreds: insecure.NewCredentials()})
		xdstest.NoError(s.t, err)
		s.creds = creds
	case "bootstrap":
		s.setBootstrap(arg)
	case "dial":
		cc, err := grpc.NewClient("xds:///"+s.endpoint, grpc.WithResolvers(s), grpc.WithTransportCredentials(s.creds), grpc.WithAuthority("authority"))
		xdstest.NoError(s.t, err)
		s.t.Cleanup(func() { cc.Close() })
		s.cc = cc
		cc.Connect()
	case "idle":
		s.Close()
	case "wake":
		xdstest.NoError(s.t, s.wake())
	case "begin":
		s.begin()
	case "end":
		return strings.Join([]string{<-s.begun, <-s.begun}, ", ")
	case "log":
		fallbacks, moves := s.lines()
		return fmt.Sprintf("%d fallbacks, %d moves", fallbacks-s.fallbacks, moves-s.moves)
	case "rpc", "ready":
		return s.rpc(grpc.WaitForReady(words[0] == "ready"))
	case "dns":
		s.answerDNS(arg)
	default:
		s.answer(words[0], arg)
	}
	if s.cc == nil {
		return ""
	}
	if s.built != nil {
		s.settle()
	}
	for _, c := range channels.All() {
		if c.Target == s.cc.Target() && c.Mode == s.status.Mode && c.Since != s.status.Since && s.status.Reason != "" {
			s.t.Errorf("in the mode since %v, want %v", c.Since, s.status.Since)
		}
		if c.Target == s.cc.Target() && (c.Mode != s.status.Mode || c.Reason != s.status.Reason) {
			s.status = c
			return s.brief(fmt.Sprintf("%v: %s", c.Mode, c.Reason))
		}
	}
	return ""
}

// begin begins a unary and a streaming RPC that wait for ready.
func (s *channelScript) begin() {
	ctx := testutils.Context(s.t)
	for _, rpc := range []func(context.Context, *grpc.ClientConn, ...grpc.CallOption) (string, error){invoke, invokeStream} {
		go func() {
			backend, err := rpc(ctx, s.cc, grpc.WaitForReady(true))
			if err != nil {
				backend = err.Error()
			}
			s.begun <- backend
		}()
	}
}

// lines returns how often the process has logged that the target falls back to DNS, and that it moves to xDS.
func (s *channelScript) lines() (fallbacks, moves int) {
	return logged.Count("xds:///"+s.endpoint, ": resolved by DNS"), logged.Count("xds:///"+s.endpoint, "configured by xDS, no longer by DNS", "Listener")
}

// setBootstrap changes the environment, and waits until a channel without a bootstrap has read it.
func (s *channelScript) setBootstrap(arg string) {
	s.Change(func() {
		s.bootstrap, s.err = nil, nil
		switch arg {
		case "missing":
			s.err = fmt.Errorf("%w here", bootstrap.ErrNotConfigured)
		case "faulty":
			s.err = errors.New("faulty bootstrap")
		default:
			s.bootstrap, s.err = bootstrapOf(arg)
		}
	})
	if s.built == nil {
		return
	}
	before := s.reads
	s.Await(s.t, "the environment to be read", func() bool { return s.reads > before })
	s.built.ResolveNow(grpcresolver.ResolveNowOptions{}) // waits until the channel has taken in what it has read
}

// answerDNS answers for the target.
func (s *channelScript) answerDNS(arg string) {
	switch arg {
	case "fails":
		names.watcher(s.t, s.endpoint).ReportError(errors.New("DNS failed"))
	case "empty":
		names.answer(s.t, s.endpoint)
	case "nowhere":
		names.answer(s.t, s.endpoint, "127.0.0.1:1")
	default:
		names.answer(s.t, s.endpoint, s.dns.Addr())
	}
}

// refusals are errors in place of a resource.
var refusals = map[string]error{
	"missing":       failure(xdsclient.KindDoesNotExist, "missing"),
	"not-found":     &xdsclient.Error{Kind: xdsclient.KindServer, Code: codes.NotFound, Err: errors.New("not found")},
	"unreachable":   failure(xdsclient.KindUnreachable, "unreachable"),
	"silent":        failure(xdsclient.KindTimeout, "silent"),
	"denied":        &xdsclient.Error{Kind: xdsclient.KindServer, Code: codes.PermissionDenied, Err: errors.New("denied")},
	"unavailable":   &xdsclient.Error{Kind: xdsclient.KindServer, Code: codes.Unavailable, Err: errors.New("unavailable")},
	"invalid":       failure(xdsclient.KindInvalid, "invalid"),
	"configuration": failure(xdsclient.KindConfiguration, "configuration"),
	"another-error": errors.New("another error"),
}

// answer answers the watches of a resource.
func (s *channelScript) answer(resource, arg string) {
	s.t.Helper()
	name := strings.TrimPrefix(s.cc.Target(), "xds:///")
	all := map[string][]string{
		"listener": {"Listener " + name}, "routes": {"RouteConfiguration R"}, "cluster": {"Cluster C", "ClusterLoadAssignment C"}}[resource]
	for _, key := range all {
		w := s.watcher(s.t, key)
		before, ambient := strings.CutPrefix(arg, "ambient-")
		switch {
		case ambient:
			w.AmbientError(refusals[before], func() {})
		case arg == "ok":
			w.ResourceChanged(meshResources(s.t, name, s.mesh)[key], nil, func() {})
		default:
			w.ResourceChanged(nil, refusals[arg], func() {})
		}
	}
}

// rpc makes an RPC and returns who answers, its error, or that it waits for a configuration.
func (s *channelScript) rpc(opts ...grpc.CallOption) string {
	s.t.Helper()
	ctx, cancel := context.WithCancel(testutils.Context(s.t))
	defer cancel()
	result := make(chan string, 1)
	go func() {
		backend, err := invoke(ctx, s.cc, opts...)
		if err != nil {
			backend = fmt.Sprintf("%v: %s", status.Code(err), s.brief(status.Convert(err).Message()))
		}
		result <- backend
	}()
	const sure = 50 // An RPC that fails at once counts as waiting for a moment.
	for waiting := 0; waiting < sure; {
		select {
		case text := <-result:
			return text
		case <-time.After(time.Millisecond):
		}
		if ch, err := grpcbridge.Attach(s.rcc); err == nil && ch.Awaited() {
			waiting++
		} else {
			waiting = 0
		}
	}
	cancel()
	<-result
	return "waits"
}

// hints are what errors of the transport advise.
var hints = regexp.MustCompile(`xDS  "": |; (check|the control plane knows)[^;]*`)

// brief returns a text without what differs from run to run, and without advice.
func (s *channelScript) brief(text string) string {
	return strings.NewReplacer(s.dns.Addr(), "DNS-BACKEND", s.mesh.Addr(), "MESH-BACKEND").Replace(hints.ReplaceAllString(text, ""))
}
