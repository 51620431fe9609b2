package main

import (
	"crypto/x509"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	channelzpb "google.golang.org/grpc/channelz/grpc_channelz_v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dynxds/dynxds/internal/testca"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/internal/cmdtest"
	"github.com/dynxds/dynxds/testutils"
)

// secure is a server with TLS, which demands an identity.
type secure struct {
	*kube
	ca     *testca.CA
	caFile string
	server string
}

func newSecure(t testing.TB, change ...func(*flags)) *secure {
	t.Helper()
	s := &secure{kube: newKube(t), ca: testca.New(t)}
	cert, key := leafFiles(t, s.ca, &x509.Certificate{DNSNames: []string{"localhost"}})
	s.caFile = writeFile(t, s.ca.PEM())
	_, port, err := net.SplitHostPort(s.serving(append([]func(*flags){func(f *flags) {
		f.anonymous, f.opts.Serve.Cert, f.opts.Serve.Key, f.opts.Authority = false, cert, key, "mesh"
	}}, change...)...))
	xdstest.NoError(t, err)
	s.server = net.JoinHostPort("localhost", port)
	return s
}

// token makes a token of a service account, bound to a pod unless that is nil.
func (k *kube) token(account, audience string, pod *corev1.Pod) string {
	k.t.Helper()
	ctx := testutils.Context(k.t)
	accounts := k.client.CoreV1().ServiceAccounts(k.namespace)
	if _, err := accounts.Get(ctx, account, metav1.GetOptions{}); err != nil {
		_, err := accounts.Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: account}}, metav1.CreateOptions{})
		xdstest.NoError(k.t, err)
	}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: []string{audience}}}
	if pod != nil {
		request.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: pod.Name, UID: pod.UID}
	}
	made, err := accounts.CreateToken(ctx, account, request, metav1.CreateOptions{})
	xdstest.NoError(k.t, err)
	return made.Status.Token
}

// pod makes a pod on a node, which is made too.
func (k *kube) pod(name, account, node, zone string) *corev1.Pod {
	k.t.Helper()
	ctx := testutils.Context(k.t)
	_, err := k.client.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node, Labels: map[string]string{corev1.LabelTopologyZone: zone}}}, metav1.CreateOptions{})
	xdstest.NoError(k.t, err)
	pod, err := k.client.CoreV1().Pods(k.namespace).Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.PodSpec{ServiceAccountName: account, NodeName: node, Containers: []corev1.Container{{Name: "main", Image: "image"}}},
	}, metav1.CreateOptions{})
	xdstest.NoError(k.t, err)
	return pod
}

// bootstrap is that of a client with a token in a file, or without if the path is empty. With dynamic parameters it is for
// targets of the authority alone.
func (s *secure) bootstrap(target, tokenFile string, opts ...testutils.BootstrapOption) []byte {
	kind := "plain"
	if strings.HasPrefix(target, "xds://mesh/") {
		kind = "DPDS"
	}
	return testutils.Bootstrap("client", s.server, append(opts, s.kindOf(clientKinds[kind], false, tokenFile)...)...)
}

func writeFile(t testing.TB, text []byte) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "file")
	xdstest.NoError(t, os.WriteFile(path, text, 0o600))
	return path
}

func writeToken(t testing.TB, token string) (path string) { return writeFile(t, []byte(token)) }

// leafFiles makes a certificate, and writes it and its key into files.
func leafFiles(t testing.TB, ca *testca.CA, template *x509.Certificate) (cert, key string) {
	t.Helper()
	files := testca.NewFiles(t)
	files.IssueFor(ca, template)
	return files.Cert, files.Key
}

// fails makes an RPC that fails with a text in its error.
func fails(t testing.TB, conn *grpc.ClientConn, texts ...string) {
	t.Helper()
	cmdtest.Await(t, func() string {
		_, err := testgrpc.NewTestServiceClient(conn).UnaryCall(testutils.Context(t), &testgrpc.SimpleRequest{})
		if err == nil {
			t.Fatal("an RPC succeeded")
		}
		for _, text := range texts {
			if !strings.Contains(err.Error(), text) {
				return "got " + err.Error() + ", want " + text
			}
		}
		return ""
	})
}

// A client is of the namespace, pod and zone of its token. What it says otherwise is refused.
func TestTokens(t *testing.T) {
	t.Parallel()
	s, pods := newSecure(t), &pods{}
	k := s.kube
	k.service("greeter", "8080")
	near, _ := pods.start(t, "near")
	far, _ := pods.start(t, "far")
	k.slice("greeter-1", "greeter", "", 8080, hinted(near, "zone-1", []string{"zone-1"}), hinted(far, "zone-2", []string{"zone-2"}))
	pod := k.pod("client", "frontend", "node-"+k.namespace, "zone-1")
	token := writeToken(t, k.token("frontend", "dynxds", pod))
	dial := func(t *testing.T, target, token string, opts ...testutils.BootstrapOption) *grpc.ClientConn {
		return cmdtest.DialXDS(t, target, s.bootstrap(target, token, opts...), pods.dial())
	}
	xdstest.Parallel(t, "short name and zone", func(t *testing.T) {
		awaitIDs(t, dial(t, "xds:///greeter", token), "near")
		awaitIDs(t, dial(t, "xds://mesh/greeter", token), "near")
	})
	xdstest.Parallel(t, "true claims", func(t *testing.T) {
		metadata := map[string]any{"namespace": k.namespace, "service_account": "frontend", "pod": "client", "zone": "zone-1"}
		awaitIDs(t, dial(t, "xds:///greeter", token, testutils.NodeField("metadata", metadata)), "near")
	})
	xdstest.Parallel(t, "a false claim", func(t *testing.T) {
		fails(t, dial(t, "xds:///greeter."+k.namespace, token, testutils.NodeField("metadata", map[string]any{"pod": "other"})), "PermissionDenied", "node.metadata.pod", `"other"`)
	})
	xdstest.Parallel(t, "no token", func(t *testing.T) {
		fails(t, dial(t, "xds:///greeter."+k.namespace, ""), "Unauthenticated", "jwt_token_file")
	})
	xdstest.Parallel(t, "not bound to a pod", func(t *testing.T) {
		awaitIDs(t, dial(t, "xds:///greeter", writeToken(t, k.token("frontend", "dynxds", nil)), testutils.NodeField("metadata", map[string]any{"zone": "zone-1"})), "far", "near")
	})
}

// Of the services beside xDS only health is for clients without a token.
func TestNoServicesForStrangers(t *testing.T) {
	t.Parallel()
	s := newSecure(t)
	creds, err := credentials.NewClientTLSFromFile(s.caFile, "")
	xdstest.NoError(t, err)
	conn, err := grpc.NewClient(s.server, grpc.WithTransportCredentials(creds))
	xdstest.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	ctx := testutils.Context(t)
	_, err = healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{})
	xdstest.NoError(t, err)
	_, err = channelzpb.NewChannelzClient(conn).GetServers(ctx, &channelzpb.GetServersRequest{})
	xdstest.Equal(t, "code of channelz", codes.Unimplemented, status.Code(err))
	stream, err := reflectionpb.NewServerReflectionClient(conn).ServerReflectionInfo(ctx)
	xdstest.NoError(t, err)
	_, err = stream.Recv()
	xdstest.Equal(t, "code of reflection", codes.Unimplemented, status.Code(err))
}

// A certificate with a SPIFFE ID is an identity too.
func TestCertificates(t *testing.T) {
	t.Parallel()
	clients := testca.New(t)
	roots := writeFile(t, clients.PEM())
	s, pods := newSecure(t, func(f *flags) { f.opts.Serve.ClientCA, f.trustDomain = roots, "cluster.local" }), &pods{}
	s.service("greeter", "8080")
	ip, _ := pods.start(t, "a")
	s.slice("greeter-1", "greeter", "", 8080, ready(ip))
	for id, wants := range map[string][]string{
		"spiffe://cluster.local/ns/" + s.namespace + "/sa/client": nil,
		"SPIFFE://cluster.local/ns/" + s.namespace + "/sa/client": nil,
		"spiffe://cluster.local/workload":                         {"Unauthenticated"},
		"spiffe://cluster.local/ns/" + s.namespace + "/sa/%63":    {"Unauthenticated"},
		"spiffe://partner/ns/" + s.namespace + "/sa/client":       {"Unauthenticated", `trust domain "partner", want "cluster.local"`},
	} {
		uri, err := url.Parse(id)
		xdstest.NoError(t, err)
		cert, key := leafFiles(t, clients, &x509.Certificate{URIs: []*url.URL{uri}})
		server := map[string]any{"server_uri": s.server, "channel_creds": []any{map[string]any{"type": "tls", "config": map[string]any{
			"ca_certificate_file": s.caFile, "certificate_file": cert, "private_key_file": key,
		}}}}
		conn := cmdtest.DialXDS(t, "xds:///greeter", testutils.Bootstrap("client", s.server, testutils.TopLevel("xds_servers", []any{server})), pods.dial())
		if wants != nil {
			fails(t, conn, wants...)
		} else {
			xdstest.Equal(t, "who answers", "a", call(t, conn))
		}
	}
}

// A client whose token is rotated uses the new one for its next stream; a token of a deleted account is refused.
func TestTokenRotated(t *testing.T) {
	t.Parallel()
	s, pods := newSecure(t), &pods{}
	s.service("greeter", "8080")
	ip, _ := pods.start(t, "a")
	s.slice("greeter-1", "greeter", "", 8080, ready(ip))
	first := s.token("client", "dynxds", nil)
	file := writeToken(t, "not yet a token")
	conn := cmdtest.DialXDS(t, "xds:///greeter", s.bootstrap("xds:///greeter", file), pods.dial())
	fails(t, conn, "invalid JWT")
	xdstest.NoError(t, os.WriteFile(file, []byte(first), 0o600))
	xdstest.Equal(t, "who answers", "a", call(t, conn))

	// The API server itself remembers tokens for ten seconds, so this one must not have been reviewed before.
	deleted := writeToken(t, s.token("deleted", "dynxds", nil))
	xdstest.NoError(t, s.client.CoreV1().ServiceAccounts(s.namespace).Delete(testutils.Context(t), "deleted", metav1.DeleteOptions{}))
	fails(t, cmdtest.DialXDS(t, "xds:///greeter", s.bootstrap("xds:///greeter", deleted), pods.dial()), "Unauthenticated")
}
