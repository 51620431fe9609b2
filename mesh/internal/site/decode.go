package site

import (
	"fmt"
	"runtime"
	"strings"
	"sync"

	listenerpb "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	"google.golang.org/protobuf/types/known/anypb"

	_ "github.com/dynxds/dynxds" // the filters and policies that a client has
	"github.com/dynxds/dynxds/internal/xdsname"
	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/mesh/controlplane"
	"github.com/dynxds/dynxds/mesh/internal/publish"
	"github.com/dynxds/dynxds/mesh/meshroute"
	"github.com/dynxds/dynxds/xdsclient"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

type verdict struct {
	severity meshroute.Severity
	// message is "" for a resource that clients accept.
	message string
}

// clientTypes are the types that clients decode.
var clientTypes = map[string]*xdsclient.ResourceType{
	meshroute.ListenerType:           xdsresource.ListenerType,
	meshroute.RouteConfigurationType: xdsresource.RouteConfigurationType,
	meshroute.ClusterType:            xdsresource.ClusterType,
	meshroute.EndpointsType:          xdsresource.EndpointsType,
	dynparam.MapTypeURL:              xdsresource.DynamicParameterConstraintsType,
}

// check finds what clients reject among the resources of an update, by decoding them as a client of dynxds does.
func check(puts []publish.Put) map[*controlplane.Resource]meshroute.Report {
	reports := make(map[*controlplane.Resource]meshroute.Report)
	verdicts := judgeAll(puts)
	for _, r := range puts {
		v := verdicts[r.Any()]
		if v.message == "" || v.severity == meshroute.Warning && !r.Written {
			continue
		}
		name := clientTypes[r.Any().GetTypeUrl()].Name
		reports[r.Resource] = meshroute.Report{Severity: v.severity, Message: describe(name, r.Resource) + ": " + v.message}
	}
	return reports
}

func describe(typeName string, r *controlplane.Resource) string {
	text := typeName + " " + r.Name()
	if !r.Parameters().IsZero() {
		text += " " + r.Parameters().String()
	}
	return text
}

// judgeAll decodes resources of clientTypes, on all cores: when a server starts, these are all that there are. Variants may
// share their bytes.
func judgeAll(puts []publish.Put) map[*anypb.Any]*verdict {
	verdicts := make(map[*anypb.Any]*verdict, len(puts))
	work := make(chan publish.Put, len(puts))
	for _, r := range puts {
		if verdicts[r.Any()] == nil {
			verdicts[r.Any()] = new(verdict)
			work <- r
		}
	}
	close(work)
	var judging sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), len(work)) {
		judging.Go(func() {
			for r := range work {
				if decode := clientTypes[r.Any().GetTypeUrl()]; decode != nil {
					*verdicts[r.Any()] = judge(decode, r.Name(), r.Any())
				}
			}
		})
	}
	judging.Wait()
	return verdicts
}

// judge decodes one resource.
func judge(decode *xdsclient.ResourceType, name string, resource *anypb.Any) verdict {
	if isServers(resource) {
		return verdict{meshroute.Warning, "it has no api_listener, so it is for a gRPC server; clients that dial it reject it"}
	}
	_, err := decode.Decode(resource, xdsclient.DecodeOptions{})
	inMessage := string(decode.NameOf(resource.GetValue()))
	switch {
	case err != nil:
		return verdict{meshroute.Error, fmt.Sprintf("clients reject it: %v", err)}
	case inMessage != "" && inMessage != name && !strings.HasPrefix(name, xdsname.Prefix):
		return verdict{meshroute.Error, fmt.Sprintf("clients do not find it, as the name in the message is %q; make the names equal", inMessage)}
	}
	return verdict{}
}

// isServers reports whether a resource is the Listener of a gRPC server.
func isServers(resource *anypb.Any) bool {
	var l listenerpb.Listener
	return resource.MessageIs(&l) && resource.UnmarshalTo(&l) == nil && l.GetApiListener() == nil && l.GetAddress() != nil
}
