// Package lookup has a RouteLookupService for tests. It is for programs that link gRPC's RLS, which has the messages.
package lookup

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
)

// Service is a RouteLookupService: an RPC goes to the targets of its key "tenant", with header data that names the tenant.
type Service struct {
	addr string

	mu      sync.Mutex
	targets map[string][]string // by tenant; a tenant that is missing is an error
	asked   []string            // the keys of the requests
}

// ofLookup returns a new message of grpc.lookup.v1, whose Go types are internal to gRPC.
func ofLookup(name protoreflect.Name) protoreflect.Message {
	typ, err := protoregistry.GlobalTypes.FindMessageByName(protoreflect.FullName("grpc.lookup.v1").Append(name))
	if err != nil {
		panic(err)
	}
	return typ.New()
}

// Start runs a Service for the rest of the test.
func Start(t testing.TB) *Service {
	t.Helper()
	l := &Service{targets: map[string][]string{}}
	l.addr = xdstest.Serve(t, nil, grpc.NewServer(grpc.UnknownServiceHandler(l.serve)))
	return l
}

func (l *Service) serve(_ any, stream grpc.ServerStream) error {
	request := ofLookup("RouteLookupRequest")
	if err := stream.RecvMsg(request.Interface()); err != nil {
		return err
	}
	var keys []string
	tenant := ""
	for k, v := range request.Get(request.Descriptor().Fields().ByName("key_map")).Map().Range {
		keys = append(keys, k.String()+"="+v.String())
		if k.String() == "tenant" {
			tenant = v.String()
		}
	}
	slices.Sort(keys)
	targets, known := l.lookup(tenant, strings.Join(keys, " "))
	switch {
	case !known:
		return status.Errorf(codes.PermissionDenied, "no tenant %q", tenant)
	case slices.Equal(targets, []string{Never}):
		<-stream.Context().Done()
		return stream.Context().Err()
	}
	text := ""
	for _, target := range targets {
		text += fmt.Sprintf("targets: %q ", target)
	}
	return stream.SendMsg(xdsmsg.With(ofLookup("RouteLookupResponse").Interface(), "%s header_data: %q", text, "data of "+tenant))
}

func (l *Service) lookup(tenant, key string) (targets []string, known bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !slices.Contains(l.asked, key) {
		l.asked = append(l.asked, key)
	}
	targets, known = l.targets[tenant]
	return targets, known
}

// Never, as the only target, leaves a request without an answer.
const Never = "never"

// Send makes the targets those of a tenant.
func (l *Service) Send(tenant string, targets ...string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.targets[tenant] = targets
}

// Plugin is the cluster specifier plugin "p" that asks the Service. more is text of its RouteLookupConfig.
func (l *Service) Plugin(more string) *routepb.ClusterSpecifierPlugin {
	return l.PluginFor("grpc.testing.TestService", more)
}

// PluginFor is Plugin with keys for RPCs of one service.
func (l *Service) PluginFor(service, more string) *routepb.ClusterSpecifierPlugin {
	specifier := xdsmsg.With(ofLookup("RouteLookupClusterSpecifier").Interface(), `
		route_lookup_config { lookup_service: %q cache_size_bytes: 100000 %s
			grpc_keybuilders { names { service: %q } headers { key: "tenant" names: "x-tenant" names: "x-old-tenant" }
				constant_keys { key: "fixed" value: "1" } extra_keys { service: "s" } } }`, "passthrough:///"+l.addr, more, service)
	return &routepb.ClusterSpecifierPlugin{Extension: &corepb.TypedExtensionConfig{Name: "p", TypedConfig: xdsmsg.Any(specifier)}}
}

// Asked returns the keys of the requests so far, each once.
func (l *Service) Asked() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Sorted(slices.Values(l.asked))
}
