package site

import (
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"

	listenerpb "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	"google.golang.org/protobuf/types/known/anypb"

	_ "github.com/dynxds/dynxds" // the filters and policies that a client has
	"github.com/dynxds/dynxds/internal/xdsname"
	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/mesh/controlplane"
	"github.com/dynxds/dynxds/mesh/internal/document"
	"github.com/dynxds/dynxds/mesh/internal/folder"
	"github.com/dynxds/dynxds/mesh/internal/publish"
	"github.com/dynxds/dynxds/mesh/meshroute"
	"github.com/dynxds/dynxds/xdsclient"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// decoder finds resources that clients reject, by decoding them as a client of dynxds does. It is for one goroutine.
type decoder struct {
	// permissive lets pass what clients reject.
	permissive bool
	// last has the reports about what was checked last, and stored those about what the store has.
	last, stored map[*controlplane.Resource]meshroute.Report
}

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

// check decodes the resources of an update. Unless the decoder is permissive, the error has those that clients reject, or, if
// the content is Separate, refused has them.
func (d *decoder) check(content *folder.Content, puts []publish.Put) (refused map[*controlplane.Resource]meshroute.Report, err error) {
	d.last = make(map[*controlplane.Resource]meshroute.Report)
	from := sync.OnceValue(func() origins { return originsOf(content) }) // seldom needed
	verdicts := judgeAll(puts)
	for _, r := range puts {
		v := verdicts[r.Any()]
		if v.message == "" {
			continue
		}
		source, written := from().of(r)
		if r.Service == "" && !written && isServers(r.Any()) {
			continue
		}
		name := clientTypes[r.Any().GetTypeUrl()].Name
		d.last[r.Resource] = meshroute.Report{Severity: v.severity, Source: source, Message: describe(name, r.Resource) + ": " + v.message}
	}
	switch {
	case d.permissive:
		return nil, nil
	case !content.Separate:
		return nil, errorsIn(d.last)
	}
	refused = make(map[*controlplane.Resource]meshroute.Report)
	for r, report := range d.last {
		if report.Severity == meshroute.Error {
			refused[r] = report
			delete(d.last, r) // which the publisher reports as long as it is so
		}
	}
	return refused, nil
}

// keep keeps the reports about what the store has, once what was checked is there.
func (d *decoder) keep(store *controlplane.Store) {
	if d.stored == nil {
		d.stored = make(map[*controlplane.Resource]meshroute.Report)
	}
	maps.Copy(d.stored, d.last)
	maps.DeleteFunc(d.stored, func(r *controlplane.Resource, _ meshroute.Report) bool {
		return !slices.Contains(store.Variants(r.Any().GetTypeUrl(), r.Name()), r)
	})
}

// errorsIn returns the errors among reports as one.
func errorsIn(reports map[*controlplane.Resource]meshroute.Report) error {
	var all document.Faults
	for _, report := range ordered(reports) {
		if report.Severity == meshroute.Error {
			all.Add(document.Fault{File: report.Source.File, Line: report.Source.Line, Problem: report.Message})
		}
	}
	return all.Err()
}

func ordered(reports map[*controlplane.Resource]meshroute.Report) []meshroute.Report {
	list := slices.SortedFunc(maps.Values(reports), func(a, b meshroute.Report) int { return strings.Compare(a.String(), b.String()) })
	return slices.Compact(list)
}

// origins say where the resources of a content were written.
type origins struct {
	resources map[origin]meshroute.Source
	services  map[string]meshroute.Source
}

// origin identifies a resource of the folder: its type, its name, and the key of its dynamic
// parameters.
type origin struct{ typeURL, name, parameters string }

func originsOf(content *folder.Content) origins {
	from := origins{make(map[origin]meshroute.Source, len(content.Resources)), make(map[string]meshroute.Source, len(content.Services))}
	for _, s := range content.Services {
		from.services[s.Name] = s.Source
	}
	for _, r := range content.Resources {
		// Invalid parameters are a fault, which was reported before.
		parameters, _ := dynparam.NewParameters(r.Parameters)
		from.resources[origin{r.Any.GetTypeUrl(), r.Name, parameters.Key()}] = r.Source
	}
	return from
}

// of returns where the resource or its service is written, and whether it is written as a resource.
func (o origins) of(r publish.Put) (source meshroute.Source, written bool) {
	if r.Service != "" {
		return o.services[r.Service], false
	}
	source, written = o.resources[origin{r.Any().GetTypeUrl(), r.Name(), r.Parameters().Key()}]
	return source, written
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
