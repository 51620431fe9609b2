package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/internal/cmdtest"
	"github.com/dynxds/dynxds/mesh/kubernetes/internal/cluster"
	"github.com/dynxds/dynxds/testutils"
)

// gatewayService is the Service that takes the place of a Gateway as the parent of routes.
const gatewayService = "the-gateway"

// suite is a server with the namespaces and Services of the conformance suite.
type suite struct {
	t      *testing.T
	dir    string
	server string
	// namespaces are those of the API server, by their names in the suite.
	namespaces map[string]*kube
	pods       pods
	mu         sync.Mutex
	// arrived are the paths of the requests that backends have got.
	arrived map[string][]string
}

// The cases of the conformance suite of the Gateway API are carried out with a Service in place of a Gateway, with RPCs in place of
// HTTP requests, and with backends in place of pods. conformanceCases says of one why it is not.
func TestConformance(t *testing.T) {
	t.Parallel()
	dir, err := moduleDir("sigs.k8s.io/gateway-api/conformance")
	xdstest.NoError(t, err)
	cases := readConformance(t, dir)
	server := newKube(t).serving()
	run := 0
	for _, name := range slices.Sorted(maps.Keys(cases)) {
		how := conformanceCases[name]
		if how.not != "" || conformanceGroup(name) != "" {
			continue
		}
		run++
		if how.requests != nil {
			cases[name].requests = how.requests
		}
		if len(cases[name].requests) == 0 {
			t.Errorf("the case %q has no requests", name)
		}
		xdstest.Parallel(t, name, func(t *testing.T) { newSuite(t, dir, server).run(cases[name], how) })
	}
	for name := range conformanceCases {
		if cases[name] == nil {
			t.Errorf("the suite has no case %q", name)
		}
	}
	t.Logf("%d of the %d cases of the suite are carried out", run, len(cases))
}

func newSuite(t *testing.T, dir, server string) *suite {
	return &suite{t: t, dir: dir, server: server, namespaces: map[string]*kube{}, arrived: map[string][]string{}}
}

// in returns the namespace for one of the suite.
func (s *suite) in(namespace string) *kube {
	s.t.Helper()
	if s.namespaces[namespace] == nil {
		s.namespaces[namespace] = newKube(s.t)
	}
	return s.namespaces[namespace]
}

// move gives all references in an object the namespaces of the test.
func (s *suite) move(v any) {
	switch v := v.(type) {
	case map[string]any:
		for key, value := range v {
			if name, ok := value.(string); ok && key == "namespace" && strings.HasPrefix(name, "gateway-conformance-") {
				v[key] = s.in(name).namespace
			} else {
				s.move(value)
			}
		}
	case []any:
		for _, e := range v {
			s.move(e)
		}
	}
}

// services makes the Services of a manifest of the suite. Each has a backend, but for that of two versions.
func (s *suite) services(manifest string) {
	s.t.Helper()
	backends := map[string]string{}
	for _, object := range objectsOf(s.t, filepath.Join(s.dir, manifest)) {
		if object.GetKind() != "Service" {
			continue
		}
		k, name := s.in(object.GetNamespace()), object.GetName()
		backends[name] = s.backend(name)
		s.move(object.Object)
		k.apply(object)
		s.slice(k, object, backends[name])
	}
	if k := s.namespaces["gateway-conformance-mesh"]; k != nil && backends["echo-v1"] != "" {
		k.changeSlice("echo-1", func(slice *discoveryv1.EndpointSlice) {
			slice.Endpoints = []discoveryv1.Endpoint{ready(backends["echo-v1"]), ready(backends["echo-v2"])}
		})
	}
}

// slice makes the EndpointSlice of a Service with one endpoint.
func (s *suite) slice(k *kube, service *unstructured.Unstructured, ip string) {
	s.t.Helper()
	ports, _, _ := unstructured.NestedSlice(service.Object, "spec", "ports")
	k.sliceWith(service.GetName()+"-1", service.GetName(), func(slice *discoveryv1.EndpointSlice) {
		for _, p := range ports {
			name, _ := p.(map[string]any)["name"].(string)
			number := int32(3000)
			slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{Name: &name, Port: &number})
		}
		slice.Endpoints = []discoveryv1.Endpoint{ready(ip)}
	})
}

// echoed is what a backend says of a request that it has got.
type echoed struct {
	Backend, Path, Host string
	Headers             http.Header
}

// The headers between the test and its backends: what they got; the headers that they are to answer with; how long they wait; with
// which code they fail, and how many attempts.
const echoedHeader, answerHeader, delayHeader, failHeader, timesHeader = "echoed", "answer", "delay", "fail", "times"

// backend starts a server that answers RPCs of any path, also of such as gRPC has not, and returns the address of its pod.
func (s *suite) backend(name string) (ip string) {
	s.t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	xdstest.NoError(s.t, err)
	server := &http.Server{Protocols: new(http.Protocols), Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		s.mu.Lock()
		s.arrived[name] = append(s.arrived[name], r.URL.Path)
		s.mu.Unlock()
		w.Header().Set("Content-Type", "application/grpc")
		// All attempts of an RPC but the last ones fail if it says so.
		attempts, _ := strconv.Atoi(r.Header.Get("grpc-previous-rpc-attempts"))
		if times, _ := strconv.Atoi(r.Header.Get(timesHeader)); attempts < times {
			w.Header().Set("Grpc-Status", r.Header.Get(failHeader))
			return
		}
		if delay, err := time.ParseDuration(r.Header.Get(delayHeader)); err == nil {
			select {
			case <-time.After(delay):
			case <-r.Context().Done():
			}
		}
		var answer map[string]string
		_ = json.Unmarshal([]byte(r.Header.Get(answerHeader)), &answer)
		for key, value := range answer {
			w.Header().Set(key, value)
		}
		text, _ := json.Marshal(echoed{name, r.URL.Path, r.Host, r.Header})
		w.Header().Set(echoedHeader, base64.StdEncoding.EncodeToString(text))
		w.Header().Set("Trailer", "Grpc-Status")
		_, _ = w.Write(make([]byte, 5)) // an empty message
		w.Header().Set("Grpc-Status", "0")
	})}
	server.Protocols.SetUnencryptedHTTP2(true)
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			s.t.Errorf("backend: %v", err)
		}
	})
	s.t.Cleanup(func() {
		server.Close()
		serving.Wait()
	})
	return s.pods.add(listener.Addr().String())
}

// run carries out a case.
func (s *suite) run(c *conformanceCase, how conformanceRun) {
	mesh := strings.HasPrefix(c.name, "Mesh")
	home := s.in("gateway-conformance-infra")
	if mesh {
		home = s.in("gateway-conformance-mesh")
		s.services("mesh/manifests.yaml")
	} else {
		s.services("base/manifests.yaml")
		// It has an endpoint of its own, so that RPCs succeed that no route takes.
		home.service(gatewayService, "80")
		home.slice(gatewayService+"-1", gatewayService, "", 3000, ready(s.backend(gatewayService)))
	}
	var routes []*unstructured.Unstructured
	for _, manifest := range c.manifests {
		for _, object := range objectsOf(s.t, filepath.Join(s.dir, manifest)) {
			if object.GetKind() == "Gateway" || object.GetKind() == "Namespace" {
				continue
			}
			parents, _, _ := unstructured.NestedSlice(object.Object, "spec", "parentRefs")
			for _, p := range parents {
				if p := p.(map[string]any); p["kind"] == nil {
					p["group"], p["kind"], p["name"] = "", "Service", gatewayService
				}
			}
			if parents != nil {
				xdstest.NoError(s.t, unstructured.SetNestedSlice(object.Object, parents, "spec", "parentRefs"))
			}
			s.move(object.Object)
			home.apply(object)
			if parents != nil {
				routes = append(routes, object)
			}
		}
	}
	for _, route := range routes {
		s.awaitStatus(route, how.unresolved)
	}
	conns := map[string]*grpc.ClientConn{}
	for i, q := range c.requests {
		if before := how.before[i]; before != nil {
			before(s)
		}
		if slices.Contains(how.without, i) {
			continue
		}
		target := gatewayService + "." + home.namespace
		if mesh {
			name, port, _ := strings.Cut(q.Request.Host, ":")
			name, _, _ = strings.Cut(name, ".")
			if name == "" {
				name = "echo"
			}
			if port == "" {
				port = "80"
			}
			target = name + "." + home.namespace + ":" + port
		}
		of := home
		if q.list == "consumerCases" {
			of = s.in("gateway-conformance-mesh-consumer")
		}
		key := of.namespace + " " + target
		if conns[key] == nil {
			conns[key] = s.pods.client(s.t, s.server, "xds:///"+target, in(of.namespace), testutils.ServerFeatures("trusted_xds_server"))
		}
		if slices.Contains(how.anyPath, i) {
			q.ExpectedRequest.Request.Path = ""
		}
		cmdtest.Await(s.t, func() string {
			if fault := s.check(conns[key], q); fault != "" {
				return fmt.Sprintf("request %d: %s\n%+v", i, fault, q)
			}
			return ""
		})
		if c.weights != nil {
			s.weighs(conns[key], q, c.weights)
		}
		if len(q.MirroredTo) > 0 && q.MirroredTo[0].Percent > 0 {
			s.mirrored(conns[key], q)
		}
		if how.after != nil {
			how.after(s, conns[key], q)
		}
	}
}

// awaitStatus waits until a route is accepted for each of its parents, with all backends, or with the reason why not.
func (s *suite) awaitStatus(route *unstructured.Unstructured, unresolved string) {
	s.t.Helper()
	resolved := "ResolvedRefs=True/ResolvedRefs"
	if unresolved != "" {
		resolved = "ResolvedRefs=False/" + unresolved
	}
	parents, _, _ := unstructured.NestedSlice(route.Object, "spec", "parentRefs")
	var want []string
	for range parents {
		want = append(want, "Accepted=True/Accepted", resolved)
	}
	resource := cluster.HTTPRoutes
	if route.GetKind() == "GRPCRoute" {
		resource = cluster.GRPCRoutes
	}
	k := s.in("gateway-conformance-infra")
	k.in(route.GetNamespace()).awaitConditionsOf(resource, route.GetName(), want...)
}

// send makes the RPC of a request.
func (s *suite) send(conn *grpc.ClientConn, q conformanceRequest) (got echoed, header metadata.MD, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if len(q.Request.Headers) > 0 {
		ctx = metadata.NewOutgoingContext(ctx, metadata.New(q.Request.Headers))
	}
	if len(q.BackendSetResponseHeaders) > 0 {
		text, err := json.Marshal(q.BackendSetResponseHeaders)
		xdstest.NoError(s.t, err)
		ctx = metadata.AppendToOutgoingContext(ctx, answerHeader, string(text))
	}
	method := q.method
	if method == "" {
		of, err := url.Parse("/" + strings.TrimPrefix(q.Request.Path, "/"))
		xdstest.NoError(s.t, err)
		method = of.Path
		if delay := of.Query().Get("delay"); delay != "" {
			ctx = metadata.AppendToOutgoingContext(ctx, delayHeader, delay)
		}
	}
	if err := conn.Invoke(ctx, method, &emptypb.Empty{}, &emptypb.Empty{}, grpc.Header(&header)); err != nil {
		return got, header, err
	}
	text, err := base64.StdEncoding.DecodeString(strings.Join(header.Get(echoedHeader), ""))
	xdstest.NoError(s.t, err)
	xdstest.NoError(s.t, json.Unmarshal(text, &got))
	return got, header, nil
}

// check makes an RPC, and returns what is not as it is expected. A status of HTTP is a code of gRPC: no rule, no backend, no time.
func (s *suite) check(conn *grpc.ClientConn, q conformanceRequest) (fault string) {
	want := map[int]codes.Code{0: codes.OK, 200: codes.OK, 404: codes.Unimplemented, 500: codes.Unavailable, 504: codes.DeadlineExceeded}[q.Response.StatusCode]
	for code := range codes.Code(17) {
		if code.String() == q.Response.Code {
			want = code
		}
	}
	got, header, err := s.send(conn, q)
	if status.Code(err) != want {
		return fmt.Sprintf("got error %v, want the code %s", err, want)
	}
	if want != codes.OK {
		return ""
	}
	if q.Backend != "" && got.Backend != q.Backend {
		return fmt.Sprintf("%s answered, want %s", got.Backend, q.Backend)
	}
	arrives := q.ExpectedRequest.Request
	if arrives.Path != "" && got.Path != arrives.Path {
		return fmt.Sprintf("the path %s arrives, want %s", got.Path, arrives.Path)
	}
	if arrives.Host != "" && got.Host != arrives.Host {
		return fmt.Sprintf("the host %s arrives, want %s", got.Host, arrives.Host)
	}
	for key, value := range arrives.Headers {
		if text := strings.Join(got.Headers.Values(key), ","); text != value {
			return fmt.Sprintf("the header %s arrives as %q, want %q", key, text, value)
		}
	}
	for _, key := range q.ExpectedRequest.AbsentHeaders {
		if values := got.Headers.Values(key); len(values) > 0 {
			return fmt.Sprintf("the header %s arrives as %q", key, values)
		}
	}
	for key, value := range q.Response.Headers {
		if text := strings.Join(header.Get(key), ","); text != value {
			return fmt.Sprintf("the header %s of the response is %q, want %q", key, text, value)
		}
	}
	for _, key := range q.Response.AbsentHeaders {
		if values := header.Get(key); len(values) > 0 {
			return fmt.Sprintf("the header %s of the response is %q", key, values)
		}
	}
	for _, mirror := range q.MirroredTo {
		if s.count(mirror.BackendRef.Name, q.Request.Path) == 0 {
			return mirror.BackendRef.Name + " gets no copy"
		}
	}
	return ""
}

// count returns how many requests for a path a backend has got.
func (s *suite) count(backend, path string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, arrived := range s.arrived[backend] {
		if arrived == path {
			n++
		}
	}
	return n
}

// mirrored waits until a mirror gets its share of requests.
func (s *suite) mirrored(conn *grpc.ClientConn, q conformanceRequest) {
	s.t.Helper()
	const n = 400
	mirror := q.MirroredTo[0]
	before, sent := s.count(mirror.BackendRef.Name, q.Request.Path), 0
	cmdtest.Await(s.t, func() string {
		for range n {
			_, _, err := s.send(conn, q)
			xdstest.NoError(s.t, err)
		}
		sent += n
		share := float64(s.count(mirror.BackendRef.Name, q.Request.Path)-before) / float64(sent) * 100
		if math.Abs(share-float64(mirror.Percent)) > 5 {
			return fmt.Sprintf("%.0f %% of %d are mirrored, want %d %%", share, sent, mirror.Percent)
		}
		return ""
	})
}

// namesBackend checks that a filter of a backend has applied to the requests to it alone.
func namesBackend(s *suite, conn *grpc.ClientConn, q conformanceRequest) {
	for range 100 {
		got, _, err := s.send(conn, q)
		xdstest.NoError(s.t, err)
		xdstest.Equal(s.t, "the header of the backend", []string{got.Backend}, got.Headers.Values("Backend"))
	}
}

// weighs waits until backends get their shares, give or take a twentieth, as in the suite.
func (s *suite) weighs(conn *grpc.ClientConn, q conformanceRequest, weights map[string]float64) {
	s.t.Helper()
	cmdtest.Await(s.t, func() string {
		const n = 500
		answered := map[string]int{}
		for range n {
			got, _, err := s.send(conn, q)
			xdstest.NoError(s.t, err)
			answered[got.Backend]++
		}
		for name, count := range answered {
			if math.Abs(float64(count)/n-weights[name]) > 0.05 {
				return fmt.Sprintf("got %v of %d, want %v", answered, n, weights)
			}
		}
		return ""
	})
}

// deleteGrant deletes the ReferenceGrant of the case about it.
func deleteGrant(s *suite) {
	k := s.in("gateway-conformance-web-backend")
	xdstest.NoError(s.t, k.dynamic().Resource(cluster.ReferenceGrants).Namespace(k.namespace).Delete(testutils.Context(s.t), "reference-grant", metav1.DeleteOptions{}))
}
