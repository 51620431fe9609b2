package explain

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/httpfilter"
	"github.com/dynxds/dynxds/internal/dialect"
	"github.com/dynxds/dynxds/internal/provenance"
	"github.com/dynxds/dynxds/internal/typeurl"
	"github.com/dynxds/dynxds/internal/xdsresource"
)

// filters returns the HTTP filters of RPCs that take the route and go to its n-th cluster, below 0 for
// what holds for all of them.
func (e routeExplainer) filters(n int) []Filter {
	host := e.raw.virtualHost()
	levels := []xdsresource.FilterOverrides{nil, e.route.Overrides, e.virtualHost.Overrides}
	places := []struct { // of the levels
		name, at string
		raw      map[string]*anypb.Any
	}{
		{levelWeighted, e.at(provenance.BackendRefs), nil},
		{levelRoute, e.at(provenance.Filters), e.rawRoute().GetTypedPerFilterConfig()},
		{levelVirtualHost, provenance.At(host.GetMetadata(), provenance.Filters, provenance.Service), host.GetTypedPerFilterConfig()},
	}
	if n >= 0 {
		levels[0], places[0].raw = e.route.Action.(*xdsresource.Forward).Clusters[n].Overrides, e.weighted[n].GetTypedPerFilterConfig()
	}
	var list []Filter
	for i := range e.listener.Filters {
		in := &e.listener.Filters[i]
		f := Filter{
			Name: in.Name, Type: typeName(in.Filter), Disabled: in.Disabled, Level: levelListener,
			Config: e.filterConfig(in.Name), At: provenance.At(e.raw.listener.GetMetadata(), provenance.Filters, provenance.Service),
		}
		config := in.Config
		level, o, other := xdsresource.OverrideOf(in, levels)
		if level >= 0 {
			f.Level, f.At, f.Disabled = places[level].name, places[level].at, o.Disabled
			if o.Config != nil {
				f.Override, config = asJSON(overrideConfig(places[level].raw, in.Name)), o.Config
			}
		}
		f.Ignored = e.implementation.filter(f.Type)
		if other != nil {
			e.note("an override for filter %q is for the type %s, not %s, and is passed over", in.Name, typeName(other), f.Type)
		}
		if f.Ignored == "" {
			f.Ignored = ofServers(in.Filter)
		}
		if f.Ignored == "" && !f.Disabled {
			rpc := &httpfilter.RPC{Method: e.rpc.Method, Authority: e.rpc.Authority}
			f.Ends = filterEnd(e.rpc.Context, rpc, config)
			if c, ok := config.(interface {
				Chooses(context.Context, *httpfilter.RPC) string
			}); ok {
				f.Chooses = c.Chooses(e.rpc.Context, rpc)
			}
		}
		if !e.afford(filterDetails + len(f.Config) + len(f.Override) + len(f.Chooses)) {
			return list
		}
		list = append(list, f)
	}
	return list
}

// filterEnd returns which RPCs like this one a filter with a configuration ends, or nil.
func filterEnd(ctx context.Context, rpc *httpfilter.RPC, config httpfilter.Config) *FilterEnd {
	c, ok := config.(interface {
		Ends(context.Context, *httpfilter.RPC) (percent float64, code codes.Code)
	})
	if !ok {
		return nil
	}
	share, code := c.Ends(ctx, rpc)
	if share = percent(share); share == 0 {
		return nil
	}
	return &FilterEnd{Percent: share, Code: codeName(code)}
}

// About what filters and header edits need in an explanation, beside their configuration and values.
const filterDetails, editDetails = 200, 100

// filterConfig returns the configuration of a filter in the Listener.
func (e *explainer) filterConfig(name string) json.RawMessage {
	config, known := e.filterConfigs[name]
	if !known {
		config = asJSON(e.raw.filterConfig(name))
		e.filterConfigs[name] = config
	}
	return config
}

// ofServers returns why a filter does nothing in clients, or "".
func ofServers(f httpfilter.Filter) string {
	if _, ok := f.(httpfilter.ClientFilter); ok || f.IsTerminal() {
		return ""
	}
	return "it runs on servers only"
}

// typeName returns the name of the message that configures a filter.
func typeName(f httpfilter.Filter) string {
	return typeurl.Name(f.TypeURLs()[0])
}

// headers describes the edits of headers. here has those that are written at the route's own place.
func (e routeExplainer) headers(m *xdsresource.HeaderMutations, here map[string]bool) (list []Setting) {
	if m == nil {
		return nil
	}
	for _, side := range []struct {
		name  string
		edits xdsresource.HeaderEdits
	}{{"request ", m.Request}, {"response ", m.Response}} {
		for _, level := range side.edits {
			for i := range level {
				name := side.name + level[i].Name
				s := Setting{Name: "headers", Value: name + ": " + describeEdit(&level[i]), Ignored: e.implementation.about(dialect.HeaderEdits)}
				if here[name] {
					s.At = e.at(provenance.Filters)
				}
				if !e.afford(editDetails + len(s.Value)) {
					return list
				}
				list = append(list, s)
			}
		}
	}
	return list
}

// editedHere returns the headers that the route itself edits, in lower case and behind "request " or "response ".
func (e routeExplainer) editedHere() map[string]bool {
	here := make(map[string]bool)
	edited := func(side string, added []*corepb.HeaderValueOption, removed []string) {
		for _, a := range added {
			here[side+strings.ToLower(a.GetHeader().GetKey())] = true
		}
		for _, r := range removed {
			here[side+strings.ToLower(r)] = true
		}
	}
	raw := e.rawRoute()
	edited("request ", raw.GetRequestHeadersToAdd(), raw.GetRequestHeadersToRemove())
	edited("response ", raw.GetResponseHeadersToAdd(), raw.GetResponseHeadersToRemove())
	return here
}

// describeEdit describes everything that a level does to one header.
func describeEdit(h *xdsresource.HeaderEdit) string {
	present, absent := describeValues(h.Name, h.Present), describeValues(h.Name, h.Absent)
	switch {
	case h.Replace && len(h.Present)+len(h.Absent) == 0:
		return "remove"
	case h.Replace && slices.Equal(h.Present, h.Absent):
		return "set to " + present
	case h.Replace && len(h.Absent) == 0:
		return fmt.Sprintf("set to %s if present", present)
	case h.Replace:
		return fmt.Sprintf("set to %s if present, else to %s", present, absent)
	case slices.Equal(h.Present, h.Absent):
		return "append " + present
	case len(h.Present) == 0:
		return fmt.Sprintf("add %s if absent", absent)
	default:
		return fmt.Sprintf("append %s if present, else add %s", present, absent)
	}
}

func describeValues(name string, values []string) string {
	if strings.HasSuffix(name, "-bin") {
		return fmt.Sprintf("%d binary values", len(values))
	}
	return quotedList(values)
}
