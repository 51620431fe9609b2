package site_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/internal/xdstest/golden"
	"github.com/dynxds/dynxds/mesh/internal/cmdtest"
	"github.com/dynxds/dynxds/mesh/internal/repeatlog"
	"github.com/dynxds/dynxds/mesh/internal/serve"
	"github.com/dynxds/dynxds/mesh/internal/site"
	"github.com/dynxds/dynxds/testutils"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// running is a control plane over a folder of the test.
type running struct {
	t       *testing.T
	dir     string
	addr    string
	hangups chan os.Signal
	log     *xdstest.Log
}

// logged waits until a line of the log has all of the texts.
func (r *running) logged(texts ...string) {
	r.t.Helper()
	xdstest.NoError(r.t, r.log.Wait(testutils.Context(r.t), texts...))
}

// write writes a file of the folder.
func (r *running) write(name, text string) {
	r.t.Helper()
	cmdtest.Write(r.t, r.dir, name, text)
}

// reload makes the control plane look at the folder.
func (r *running) reload() {
	r.t.Helper()
	select {
	case r.hangups <- syscall.SIGHUP:
	case <-testutils.Context(r.t).Done():
		r.t.Fatal("the control plane does not look at its folder")
	}
}

// start runs a control plane over the files until the test ends.
func start(t *testing.T, authority string, files map[string]string, change ...func(*site.Options)) *running {
	t.Helper()
	r := &running{t: t, dir: t.TempDir(), hangups: make(chan os.Signal), log: new(xdstest.Log)}
	for name, text := range files {
		r.write(name, text)
	}
	ctx, stop := context.WithCancel(context.Background())
	ready, ended := make(chan net.Addr, 1), make(chan error, 1)
	opts := site.Options{
		Dir: r.dir, Authority: authority, Poll: time.Hour, Reload: r.hangups,
		Serve: serve.Options{Listen: "127.0.0.1:0", Log: slog.New(repeatlog.NewHandler(slog.NewTextHandler(r.log, nil)))},
		Ready: func(addr net.Addr) { ready <- addr },
	}
	for _, f := range change {
		f(&opts)
	}
	go func() { ended <- site.Run(ctx, opts) }()
	select {
	case addr := <-ready:
		r.addr = addr.String()
	case err := <-ended:
		stop()
		t.Fatalf("Run returned %v", err)
	}
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("Run returned %v after a drain", err)
		}
	})
	return r
}

// client is a channel to the service "backend".
type client struct {
	t *testing.T
	testpb.TestServiceClient
}

// dial connects as a client of a service with a version.
func (r *running) dial(kind clientKind, service, version string) *client {
	r.t.Helper()
	return r.dialAs("backend", kind, map[string]any{"service": service, "version": version})
}

// dialAs connects to a service as a client with this metadata.
func (r *running) dialAs(service string, kind clientKind, metadata map[string]any, opts ...grpc.DialOption) *client {
	r.t.Helper()
	return &client{r.t, testpb.NewTestServiceClient(r.connect("xds://"+kind.authority+"/"+service, kind, metadata, opts...))}
}

// connect makes the channel of a client.
func (r *running) connect(target string, kind clientKind, metadata map[string]any, dial ...grpc.DialOption) *grpc.ClientConn {
	r.t.Helper()
	opts := []testutils.BootstrapOption{testutils.NodeField("metadata", metadata)}
	features := []string{"fail_on_data_errors"}
	if kind.delta {
		features = append(features, "delta")
	}
	if authority := kind.authority; authority != "" {
		features = append(features, "dynamic_parameter_constraints")
		opts = append(opts, testutils.Authority(authority, "", map[string]any{
			"dynamic_parameter_constraints_resource": "xdstp://" + authority + "/envoy.config.dynamic_parameters.v3.DynamicParameterConstraintsMap/client",
		}))
	}
	opts = append(opts, testutils.ServerFeatures(features...))
	bootstrap := testutils.Bootstrap(fmt.Sprint(metadata["service"], "-", metadata["version"]), r.addr, opts...)
	return cmdtest.DialXDS(r.t, target, bootstrap, dial...)
}

// call makes an RPC and returns who answered, with the response's headers.
func (c *client) call() (backend string, header metadata.MD, err error) {
	_, err = c.UnaryCall(testutils.Context(c.t), &testpb.SimpleRequest{}, grpc.Header(&header))
	return strings.Join(header.Get(testutils.BackendIDHeader), ","), header, err
}

// unavailable fails the test unless an RPC ended with UNAVAILABLE, and with texts in its message.
func unavailable(t *testing.T, err error, texts ...string) {
	t.Helper()
	if status.Code(err) != codes.Unavailable {
		t.Errorf("the RPC ended with %v, want UNAVAILABLE", err)
	}
	cmdtest.ErrorHas(t, "the RPC", err, texts...)
}

// reaches makes RPCs until one is answered by the backend. None may fail.
func (c *client) reaches(backend string) {
	c.t.Helper()
	ctx := testutils.Context(c.t)
	for ctx.Err() == nil {
		got, _, err := c.call()
		if err != nil {
			c.t.Fatalf("an RPC failed: %v", err)
		}
		if got == backend {
			return
		}
	}
	c.t.Fatalf("no RPC reached %s", backend)
}

// mesh has two versions of backend, and a shadow.
type mesh struct{ v1, v2, shadow *testutils.Backend }

func newMesh(t *testing.T) *mesh {
	return &mesh{testutils.StartBackend(t, "v1"), testutils.StartBackend(t, "v2"), testutils.StartBackend(t, "shadow")}
}

func (m *mesh) services() string {
	return fmt.Sprintf(`
kind: Service
name: backend
endpoints:
- {address: %q, tags: {version: v1}}
- {address: %q, tags: {version: v2}}
---
kind: Service
name: shadow
endpoints:
- {address: %q}
`, m.v1.Addr(), m.v2.Addr(), m.shadow.Addr())
}

// policyOf is a document of testdata, in which VERSION stands for a version.
func policyOf(t *testing.T, name, version string) string {
	return strings.ReplaceAll(golden.Read(t, "testdata/documents/"+name+".yaml"), "VERSION", version)
}

const emptyCall = "/grpc.testing.TestService/EmptyCall"

// clientKind is how a client subscribes. Those of an authority do it with dynamic
// parameters (TP2); for the others resources are chosen by their nodes.
type clientKind struct {
	authority string
	delta     bool
}

// plain is a client as any xDS library has it.
var plain clientKind

// eachKindOfClient runs a test with every kind of client.
func eachKindOfClient(t *testing.T, test func(t *testing.T, kind clientKind)) {
	for name, kind := range map[string]clientKind{
		"plain, SotW": plain, "plain, delta": {delta: true},
		"dynamic parameters, SotW": {authority: "mesh"}, "dynamic parameters, delta": {authority: "mesh", delta: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, kind)
		})
	}
}

// One client gets the owner's mirror and response header, another the consumer's request
// header and rewritten path.
func TestPoliciesTakeEffectOnRPCs(t *testing.T) {
	t.Parallel()
	eachKindOfClient(t, func(t *testing.T, kind clientKind) {
		m := newMesh(t)
		r := start(t, kind.authority, map[string]string{
			"services.yaml": m.services(), "owner.yaml": policyOf(t, "owner", ""), "consumer.yaml": policyOf(t, "consumer", "v2"),
		})

		batch := r.dial(kind, "batch", "v2")
		backend, header, err := batch.call()
		if err != nil || backend != "v1" || len(header.Get("x-owner")) != 1 {
			t.Errorf("batch: answered by %q with %v, %v, want v1 with x-owner", backend, header, err)
		}
		if err := m.shadow.Wait(testutils.Context(t), 1); err != nil {
			t.Errorf("no copy of batch's request reached the shadow: %v", err)
		}

		frontend := r.dial(kind, "frontend", "v2")
		backend, header, err = frontend.call()
		if err != nil || backend != "v2" || len(header.Get("x-owner")) != 0 {
			t.Errorf("frontend: answered by %q with %v, %v, want v2 without x-owner", backend, header, err)
		}
		rpc := m.v2.Last()
		xdstest.Equal(t, "x-consumer", []string{"frontend"}, rpc.Metadata.Get("x-consumer"))
		if rpc.Method != emptyCall || m.v2.Count() != 1 {
			t.Errorf("frontend's request came by %s, want the path to be rewritten", rpc.Method)
		}
	})
}

func TestAFaultyFolderIsNotServed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cmdtest.Write(t, dir, "a.yaml", "kind: Servce")
	ctx, end := context.WithCancel(t.Context())
	err := site.Run(ctx, site.Options{Dir: dir, Serve: serve.Options{Listen: "127.0.0.1:0"}})
	cmdtest.ErrorHas(t, "Run", err, `a.yaml:1: kind: unknown value "Servce"`)
	end()
	xdstest.NoError(t, site.Run(ctx, site.Options{Dir: dir, Serve: serve.Options{Listen: "127.0.0.1:0"}}))
}
