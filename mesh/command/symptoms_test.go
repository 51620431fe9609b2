package command

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/internal/typeurl"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/controlplane"
	"github.com/dynxds/dynxds/mesh/internal/cmdtest"
	"github.com/dynxds/dynxds/mesh/meshtest"
	"github.com/dynxds/dynxds/observe/csds"
	"github.com/dynxds/dynxds/testutils"
)

// scene is a mesh with a symptom, and a client in this process.
type scene struct {
	// target and admin take the places of the page's.
	target, admin string
	// client, if not nil, makes an RPC before each look at the output of the commands.
	client testgrpc.TestServiceClient
}

// method takes the place of the page's method.
const method = "/grpc.testing.TestService/EmptyCall"

// symptoms has every section of the page: how its symptom comes about, and what of its cause the commands print.
var symptoms = []struct {
	section string
	mesh    func(*testing.T) scene
	cause   []string
}{
	{"UNAVAILABLE, no endpoints", onlyFolder, []string{
		`cluster "shop;version=v2" 100% [mesh.yaml:18]`, "fails there are no endpoints", "no endpoint of service shop has the tags {version=v2}",
	}},
	{"A TLS handshake fails", func(t *testing.T) scene {
		m := startSecureMesh(t, "tls: {mode: mutual, subjectAltNames: [spiffe://mesh/frontend]}")
		return scene{target: "xds:///backend", client: m.dial("xds:///backend", m.all()...)}
	}, []string{"security", "spiffe://mesh/frontend", "spiffe://mesh/backend"}},
	{"RPCs wait for the configuration", func(t *testing.T) scene {
		// A control plane that does not answer for Listeners.
		store := controlplane.NewStore()
		store.OnDemand(typeurl.Listener, func(_, _ []*controlplane.Demand) {})
		cc := cmdtest.DialXDS(t, "xds:///missing", meshtest.StartServer(t, meshtest.OverStore(store)).Bootstrap("waiting"))
		cc.Connect()
		return scene{}
	}, []string{"Listener missing: REQUESTED"}},
	{"RPCs are slow", func(t *testing.T) scene {
		return serveShop(t, oneEndpoint(t)+delayed)
	}, []string{"p50", "p99", `"fixed_delay":"0.020s"`}},
	{"No retries", func(t *testing.T) scene {
		b := testutils.StartBackend(t, "b")
		b.Fail(status.Error(codes.Internal, "a fault"))
		return serveShop(t, endpointsOf(b)+"retry: {on: [unavailable], attempts: 2}\n")
	}, []string{"retry on UNAVAILABLE", "INTERNAL: a fault"}},
	{"Routes are not as expected", func(t *testing.T) scene {
		return serveShop(t, oneEndpoint(t)+canary)
	}, []string{`header x-next = "yes"`, "no: header x-next is absent", "backendRefs"}},
	{"A canary gets no traffic", onlyFolder, []string{"no: header x-next is absent", "no endpoint of service shop has the tags {version=v2}"}},
	{"One endpoint gets no traffic", onlyFolder, []string{"10.0.0.2:8080 would be DRAINING"}},
	{"An endpoint is ejected", func(t *testing.T) scene {
		good, bad := testutils.StartBackend(t, "good"), testutils.StartBackend(t, "bad")
		bad.Fail(status.Error(codes.Internal, "a fault"))
		return serveShop(t, endpointsOf(good, bad)+"outlierDetection: {consecutive_5xx: 2, base_ejection_time: 300s, max_ejection_percent: 50}\n")
	}, []string{"ejected by consecutive_5xx until"}},
	{"A session is not sticky", func(t *testing.T) scene {
		return serveShop(t, oneEndpoint(t)+"sessionAffinity: {cookie: {name: session, path: /another.Service}}\n")
	}, []string{"/another.Service"}},
	{"DNS is used instead of xDS", func(t *testing.T) scene {
		b, control := testutils.StartBackend(t, "b"), meshtest.StartServer(t)
		cc := cmdtest.DialXDS(t, "xds:///"+b.Addr(), control.Bootstrap("dns", testutils.ServerFeatures("delta")))
		return scene{client: testgrpc.NewTestServiceClient(cc)}
	}, []string{"READY, DNS", "DOES_NOT_EXIST"}},
	{"A change does not arrive", func(t *testing.T) scene {
		dir := t.TempDir()
		cmdtest.Write(t, dir, "shop.yaml", "kind: Service\nname: shop\n")
		p := startServe(t, dir, "--admin=:0")
		s := scene{admin: strings.TrimSuffix(strings.TrimPrefix(p.pages("--admin"), "http://"), "/")}
		p.address()
		cmdtest.Write(t, dir, "shop.yaml", "kind: Service\nnme: shop\n")
		p.signal(syscall.SIGHUP)
		return s
	}, []string{"the folder has 2 errors since", "shop.yaml:1"}},
	{"NACK", func(t *testing.T) scene {
		return fakeMesh(t, xdsmsg.With(xdsmsg.EDSCluster("c", ""), `lb_policy: MAGLEV maglev_lb_config: {table_size: {value: 4}}`))
	}, []string{"Cluster c: NACKED", "tableSize must be a prime number"}},
	{"A field does nothing", func(t *testing.T) scene {
		return fakeMesh(t, xdsmsg.With(xdsmsg.EDSCluster("c", ""), `lb_subset_config: {fallback_policy: ANY_ENDPOINT}`))
	}, []string{"ignored: lb_subset_config", "NOT IN FORCE"}},
	{"The control plane cannot be reached", func(t *testing.T) scene {
		control := meshtest.StartServer(t)
		cc := cmdtest.DialXDS(t, "xds:///shop", control.Bootstrap("unreachable"))
		control.Stop()
		cc.Connect()
		return scene{}
	}, []string{"not connected", "connection refused", "since"}},
}

// The sections of the page "From symptom to command" lead to the cause, in two commands at most: these are run on a
// mesh that has the symptom. Test runs one after the other, as processes that are asked show all clients.
func TestSymptoms(t *testing.T) {
	page, err := os.ReadFile(root + "/docs/tasks/debugging.md")
	xdstest.NoError(t, err)
	commands := commandsBySection(string(page))
	folder := t.TempDir()
	_, yaml, _ := strings.Cut(string(page), "\n```yaml\n")
	yaml, _, _ = strings.Cut(yaml, "```")
	cmdtest.Write(t, folder, "mesh.yaml", yaml)
	process := cmdtest.Serve(t, func(s *grpc.Server) { xdstest.NoError(t, csds.Register(s)) })
	for _, symptom := range symptoms {
		lines := commands[symptom.section]
		delete(commands, symptom.section)
		t.Run(symptom.section, func(t *testing.T) {
			if n := len(lines); n == 0 || n > 2 {
				t.Fatalf("the section has %d commands, want one or two", n)
			}
			s := symptom.mesh(t)
			places := strings.NewReplacer("127.0.0.1:18113", process, "127.0.0.1:18002", s.admin, "xds:///backend", s.target,
				"/grpc.health.v1.Health/Check", method, "bin/debug", folder, "examples/mesh/config", exampleMesh)
			cmdtest.Await(t, func() (missing string) {
				if s.client != nil {
					s.client.EmptyCall(testutils.Context(t), new(testgrpc.Empty)) // whose error may be the symptom
				}
				output := ""
				for _, line := range lines {
					stdout, stderr, code := run(t, arguments(places.Replace(line))...)
					if code > 1 {
						return fmt.Sprintf("%s: exit status %d: %s", line, code, stderr)
					}
					output += stdout
				}
				for _, text := range symptom.cause {
					if !strings.Contains(strings.Join(strings.Fields(output), " "), text) {
						return fmt.Sprintf("the output does not have %q:\n%s", text, output)
					}
				}
				return ""
			})
		})
	}
	for section, lines := range commands {
		if len(lines) > 0 {
			t.Errorf("no test has the section %q", section)
		}
	}
}

// commandsBySection returns the calls of dynxds in a page, without what they are piped to.
func commandsBySection(page string) map[string][]string {
	all := make(map[string][]string)
	for _, section := range strings.Split(page, "\n## ")[1:] {
		title, text, _ := strings.Cut(section, "\n")
		all[title] = nil
		for _, line := range strings.Split(text, "\n") {
			if call, ok := strings.CutPrefix(line, "$ bin/dynxds "); ok {
				call, _, _ = strings.Cut(call, " | ")
				all[title] = append(all[title], call)
			}
		}
	}
	return all
}

// arguments splits a line as a shell does.
func arguments(line string) (args []string) {
	for _, word := range regexp.MustCompile(`'[^']*'|\S+`).FindAllString(line, -1) {
		args = append(args, strings.Trim(word, "'"))
	}
	return args
}

// onlyFolder is for symptoms of the page's folder.
func onlyFolder(*testing.T) scene { return scene{} }

// The service shop has the documents that tests add to its endpoints.
const (
	delayed = `filters:
- name: fault
  typed_config:
    "@type": type.googleapis.com/envoy.extensions.filters.http.fault.v3.HTTPFault
    delay: {fixed_delay: 0.020s, percentage: {numerator: 100}}
`
	canary = `---
kind: MeshHTTPRoute
metadata: {name: next}
spec:
  to:
  - targetRef: {kind: MeshService, name: shop}
    rules:
    - matches: [{path: {prefix: /}, headers: [{name: x-next, value: "yes"}]}]
      backendRefs: [{kind: MeshServiceSubset, name: shop, tags: {version: v2}}]
`
)

func oneEndpoint(t *testing.T) string { return endpointsOf(testutils.StartBackend(t, "b")) }

func endpointsOf(backends ...*testutils.Backend) string {
	text := "endpoints:\n"
	for _, b := range backends {
		text += fmt.Sprintf("- {address: %q, tags: {version: v1}}\n", b.Addr())
	}
	return text
}

// serveShop serves the service shop with these fields and documents, and has a client of it.
func serveShop(t *testing.T, text string) scene {
	t.Helper()
	dir := t.TempDir()
	xdstest.NoError(t, os.WriteFile(filepath.Join(dir, "shop.yaml"), []byte("kind: Service\nname: shop\n"+text), 0o600))
	address := startServe(t, dir, "--permissive").address()
	bootstrap := runOK(t, "bootstrap", "--server", address, "--id", "client")
	return scene{target: "xds:///shop", client: testgrpc.NewTestServiceClient(cmdtest.DialXDS(t, "xds:///shop", []byte(bootstrap)))}
}

// fakeMesh serves shop with this Cluster, named c, and has a client of it.
func fakeMesh(t *testing.T, cluster *clusterpb.Cluster) scene {
	t.Helper()
	control, b := meshtest.StartServer(t), testutils.StartBackend(t, "b")
	control.Set(t, xdsmsg.DefaultListener("shop", "shop"), xdsmsg.RouteConfig("shop", "*", xdsmsg.PrefixRoute("/", "c")),
		cluster, xdsmsg.SimpleEndpoints("c", b.Addr()))
	return scene{target: "xds:///shop", client: testgrpc.NewTestServiceClient(cmdtest.DialXDS(t, "xds:///shop", control.Bootstrap("client")))}
}
