package main

import (
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dynxds/dynxds/internal/loopback"
	"github.com/dynxds/dynxds/internal/testca"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/internal/cmdtest"
	"github.com/dynxds/dynxds/mesh/kubernetes/internal/kubetest"
	"github.com/dynxds/dynxds/mesh/kubernetes/internal/routestatus"
	"github.com/dynxds/dynxds/testutils"
)

// serveInProcess is set in the environment of a process that is the command, and not the tests.
const serveInProcess = "DYNXDS_KUBERNETES_TEST_SERVES"

// process runs the command in a process of its own, which kill ends as a crash does.
func (k *kube) process(args ...string) (address string, pid int, kill func()) {
	k.t.Helper()
	path := filepath.Join(k.t.TempDir(), "kubeconfig")
	xdstest.NoError(k.t, k.cluster.Kubeconfig(path, k.cluster.AdminToken()))
	at, err := loopback.Reserve()
	xdstest.NoError(k.t, err)
	k.t.Cleanup(at.Release)
	args = append([]string{"serve", "--kubeconfig", path, "--listen", at.String(), "--anonymous"}, args...)
	command := exec.Command(os.Args[0], args...)
	command.Env = append(os.Environ(), serveInProcess+"=1")
	command.Stdout, command.Stderr = k.t.Output(), k.t.Output()
	xdstest.NoError(k.t, command.Start())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = command.Wait()
	}()
	kill = func() {
		_ = command.Process.Kill()
		<-ended
	}
	k.t.Cleanup(kill)
	return at.String(), command.Process.Pid, kill
}

// The replica that holds the Lease is killed: clients use the other one, no RPC fails, and once the Lease has run out the other one
// writes status.
func TestLeaderKilled(t *testing.T) {
	t.Parallel()
	k, pods := newKubeAlone(t), &pods{}
	k.echo(pods, "greeter", 8080)
	leader, _, kill := k.process("--lease-namespace", k.namespace, "--namespace", k.namespace, "--lease-duration", "8s") // a busy machine renews it in time
	k.object(route("first", "NS", "greeter", "{name: greeter, port: 8080}"))
	k.awaitConditions("first", "Accepted=True/Accepted", "ResolvedRefs=True/ResolvedRefs")
	other := k.serving(func(f *flags) { f.leaseNamespace, f.namespaces = k.namespace, []string{k.namespace} })

	creds := []any{map[string]any{"type": "insecure"}}
	conn := pods.client(t, leader, "xds:///greeter."+k.namespace, testutils.TopLevel("xds_servers", []any{
		map[string]any{"server_uri": leader, "channel_creds": creds}, map[string]any{"server_uri": other, "channel_creds": creds},
	}))
	awaitInvoke(t, conn, echoMethod, nil, "greeter")
	l := startLoad(conn, 2)
	before, err := k.client.CoordinationV1().Leases(k.namespace).Get(testutils.Context(t), routestatus.LeaseName, metav1.GetOptions{})
	xdstest.NoError(t, err)
	kill()
	k.object(route("second", "NS", "greeter", "{name: greeter, port: 8080}"))
	k.awaitConditions("second", "Accepted=True/Accepted", "ResolvedRefs=True/ResolvedRefs")
	after, err := k.client.CoordinationV1().Leases(k.namespace).Get(testutils.Context(t), routestatus.LeaseName, metav1.GetOptions{})
	xdstest.NoError(t, err)
	if *before.Spec.HolderIdentity == "" || *after.Spec.HolderIdentity == *before.Spec.HolderIdentity {
		t.Errorf("the Lease was that of %q, and is that of %q", *before.Spec.HolderIdentity, *after.Spec.HolderIdentity)
	}
	// Nobody has released it, as an orderly end does.
	if held := after.Spec.AcquireTime.Sub(before.Spec.RenewTime.Time); held < 8*time.Second {
		t.Errorf("the Lease passed on %s after it was renewed", held)
	}
	l.end(t)
}

// A watch that ends as the API server does not know the revision any more (410 Gone) makes the server list again. It misses nothing,
// and is not an outage.
func TestWatchGone(t *testing.T) {
	t.Parallel()
	for name, answer := range gone {
		xdstest.Parallel(t, name, func(t *testing.T) {
			k, pods := newKube(t), &pods{}
			proxy := newAPIProxy(t, k.cluster, "endpointslices")
			k.log = &xdstest.Log{}
			server := k.serving(proxy.use)
			a, b, conn, l := k.loaded(t, pods, server)
			asked, changed := make(chan struct{}, 1), make(chan struct{})
			proxy.set(func(w http.ResponseWriter, r *http.Request) bool {
				if !resumes(r) {
					return false
				}
				select {
				case asked <- struct{}{}:
				default:
				}
				<-changed
				answer(w)
				return true
			})
			select {
			case <-asked:
			case <-testutils.Context(t).Done():
				t.Fatal("the server does not watch again")
			}
			// No watch tells of this.
			k.changeSlice("greeter-1", func(s *discoveryv1.EndpointSlice) { s.Endpoints = []discoveryv1.Endpoint{ready(b)} })
			close(changed)
			awaitIDs(t, conn, "b")
			proxy.set(nil)
			k.changeSlice("greeter-1", func(s *discoveryv1.EndpointSlice) { s.Endpoints = []discoveryv1.Endpoint{ready(a)} })
			awaitIDs(t, conn, "a")
			l.end(t)
			xdstest.Equal(t, "outages that are logged", 0, k.log.Count("does not answer"))
		})
	}
}

// An API server that does not know WatchList, or has it turned off, is one that answers.
func TestWatchListOff(t *testing.T) {
	t.Parallel()
	k, pods := newKube(t), &pods{}
	proxy := newAPIProxy(t, k.cluster, "services")
	proxy.set(func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Query().Get("sendInitialEvents") == "" {
			return false
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusUnprocessableEntity)
		_, _ = io.WriteString(w, `{"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": "Invalid", "code": 422,
			"message": "sendInitialEvents: Forbidden: sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled"}`)
		return true
	})
	k.log = &xdstest.Log{}
	server := k.serving(proxy.use)
	k.service("greeter", "8080")
	a, _ := pods.start(t, "a")
	k.slice("greeter-1", "greeter", "", 8080, ready(a))
	awaitIDs(t, pods.client(t, server, "xds:///greeter."+k.namespace), "a")
	if k.log.Count("does not answer") > 0 {
		t.Errorf("an outage is logged:\n%s", k.log)
	}
}

// gate stands before an API server. While it is shut, it accepts connections, and nothing passes.
type gate struct {
	url    string
	mu     sync.Mutex
	opened chan struct{}
}

func newGate(t testing.TB, cluster *kubetest.Cluster) *gate {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	xdstest.NoError(t, err)
	g := &gate{url: "https://" + listener.Addr().String()}
	g.open()
	target := strings.TrimPrefix(cluster.URL(), "https://")
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", target)
			if err != nil {
				client.Close()
				continue
			}
			go g.pass(server, client)
			go g.pass(client, server)
		}
	}()
	t.Cleanup(func() {
		listener.Close()
		g.open()
	})
	return g
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.opened = make(chan struct{})
	close(g.opened)
}

// shut returns a function that opens the gate again.
func (g *gate) shut() (open func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	opened := make(chan struct{})
	g.opened = opened
	return func() { close(opened) }
}

func (g *gate) pass(to, from net.Conn) {
	defer to.Close()
	for buffer := make([]byte, 64<<10); ; {
		n, err := from.Read(buffer)
		g.mu.Lock()
		opened := g.opened
		g.mu.Unlock()
		<-opened
		if _, failed := to.Write(buffer[:n]); err != nil || failed != nil {
			return
		}
	}
}

// An API server that accepts connections and answers nothing is noticed. RPCs go on, and changes that were made meanwhile arrive.
func TestAPIServerSilent(t *testing.T) {
	t.Parallel()
	k, pods := newKube(t), &pods{}
	before := newGate(t, k.cluster)
	k.log = &xdstest.Log{}
	server := k.serving(func(f *flags) {
		xdstest.NoError(t, k.cluster.KubeconfigOf(f.kubeconfig, k.cluster.AdminToken(), before.url))
	})
	_, b, conn, l := k.loaded(t, pods, server)
	open := before.shut()
	k.changeSlice("greeter-1", func(s *discoveryv1.EndpointSlice) { s.Endpoints = []discoveryv1.Endpoint{ready(b)} })
	xdstest.NoError(t, k.log.Wait(testutils.Context(t), "level=ERROR", "the API server does not answer", "since="))
	open()
	awaitIDs(t, conn, "b")
	xdstest.NoError(t, k.log.Wait(testutils.Context(t), "the API server answers again"))
	l.end(t)
}

// volume is a folder of files as the kubelet makes it for a Secret or a projected token: each is a link into a folder that a link
// leads to, which is replaced for all at once.
type volume struct {
	t        testing.TB
	dir      string
	versions int
}

func newVolume(t testing.TB) *volume { return &volume{t: t, dir: t.TempDir()} }

func (v *volume) path(name string) string { return filepath.Join(v.dir, name) }

func (v *volume) write(files map[string][]byte) {
	v.t.Helper()
	v.versions++
	version, next := fmt.Sprintf("..version_%d", v.versions), v.path("..data_tmp")
	xdstest.NoError(v.t, os.Mkdir(v.path(version), 0o700))
	for name, text := range files {
		xdstest.NoError(v.t, os.WriteFile(filepath.Join(v.dir, version, name), text, 0o600))
	}
	xdstest.NoError(v.t, os.Symlink(version, next))
	xdstest.NoError(v.t, os.Rename(next, v.path("..data")))
	for name := range files {
		if v.versions == 1 {
			xdstest.NoError(v.t, os.Symlink(filepath.Join("..data", name), v.path(name)))
		}
	}
	if v.versions > 1 {
		xdstest.NoError(v.t, os.RemoveAll(v.path(fmt.Sprintf("..version_%d", v.versions-1))))
	}
}

// The control plane's certificate is renewed in its Secret, by another authority too: new clients get the new one, and those
// that are connected notice nothing.
func TestCertificateRenewed(t *testing.T) {
	t.Parallel()
	k, pods := newKube(t), &pods{}
	first, second := testca.New(t), testca.New(t)
	tls := newVolume(t)
	issue := func(ca *testca.CA) {
		cert, key := ca.Sign(&x509.Certificate{DNSNames: []string{"localhost"}})
		tls.write(map[string][]byte{"tls.crt": cert, "tls.key": key, "ca.crt": ca.PEM()})
	}
	issue(first)
	_, port, err := net.SplitHostPort(k.serving(func(f *flags) {
		f.opts.Serve.Cert, f.opts.Serve.Key, f.opts.Serve.Refresh = tls.path("tls.crt"), tls.path("tls.key"), 50*time.Millisecond
	}))
	xdstest.NoError(t, err)
	k.service("greeter", "8080")
	a, _ := pods.start(t, "a")
	b, _ := pods.start(t, "b")
	k.slice("greeter-1", "greeter", "", 8080, ready(a))
	target := "xds:///greeter." + k.namespace
	trusting := func(ca *testca.CA) *secure {
		return &secure{kube: k, caFile: writeFile(t, ca.PEM()), server: net.JoinHostPort("localhost", port)}
	}
	conn := cmdtest.DialXDS(t, target, trusting(first).bootstrap(target, ""), pods.dial())
	awaitIDs(t, conn, "a")
	fails(t, cmdtest.DialXDS(t, target, trusting(second).bootstrap(target, ""), pods.dial()), "certificate")
	l := startLoad(conn, 2)
	issue(second)
	cmdtest.Await(t, func() string {
		late := cmdtest.DialXDS(t, target, trusting(second).bootstrap(target, ""), pods.dial())
		defer late.Close()
		if got := invoke(t, late, "/grpc.testing.TestService/EmptyCall", nil); got != "a" {
			return "a client that trusts the new authority gets " + got
		}
		return ""
	})
	fails(t, cmdtest.DialXDS(t, target, trusting(first).bootstrap(target, ""), pods.dial()), "certificate")
	k.changeSlice("greeter-1", func(s *discoveryv1.EndpointSlice) { s.Endpoints = []discoveryv1.Endpoint{ready(b)} })
	awaitIDs(t, conn, "b")
	l.end(t)
}

// A stream ends when its token expires. The next one has the token that the kubelet has put in its place, and no RPC fails.
func TestTokenExpires(t *testing.T) {
	t.Parallel()
	proxy := newAPIProxy(t, shared, "endpointslices")
	s, pods := newSecure(t, proxy.use), &pods{}
	s.service("greeter", "8080")
	a, _ := pods.start(t, "a")
	b, _ := pods.start(t, "b")
	s.slice("greeter-1", "greeter", "", 8080, ready(a))
	next := s.token("client", "dynxds", nil)
	account, err := s.client.CoreV1().ServiceAccounts(s.namespace).Get(testutils.Context(t), "client", metav1.GetOptions{})
	xdstest.NoError(t, err)
	short, err := s.cluster.Token(account, "dynxds", 12*time.Second) // a busy machine gets the first answer in time
	xdstest.NoError(t, err)
	tokens := newVolume(t)
	tokens.write(map[string][]byte{"token": []byte(short)})
	conn := cmdtest.DialXDS(t, "xds:///greeter", s.bootstrap("xds:///greeter", tokens.path("token")), pods.dial())
	awaitIDs(t, conn, "a")
	l := startLoad(conn, 2)
	tokens.write(map[string][]byte{"token": []byte(next)})
	proxy.awaitReview(short)
	proxy.awaitReview(next)
	s.changeSlice("greeter-1", func(s *discoveryv1.EndpointSlice) { s.Endpoints = []discoveryv1.Endpoint{ready(b)} })
	awaitIDs(t, conn, "b")
	l.end(t)
}
