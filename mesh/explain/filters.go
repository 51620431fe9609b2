package explain

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/httpfilter"
	"github.com/dynxds/dynxds/internal/dialect"
	"github.com/dynxds/dynxds/internal/provenance"
	"github.com/dynxds/dynxds/internal/xdsresource"
)

// filters returns the HTTP filters of RPCs that take the route and go to its n-th cluster, below 0 for
// what holds for all of them.
func (e routeExplainer) filters(n int) []Filter {
	vh := e.virtualHost
	levels := []xdsresource.FilterOverrides{e.route.Overrides, vh.Overrides}
	names := []string{levelRoute, levelVirtualHost}
	raw := []map[string]*anypb.Any{e.rawRoute().GetTypedPerFilterConfig(), e.raw.virtualHost().GetTypedPerFilterConfig()}
	at := []string{e.at(provenance.Filters), place(e.raw.virtualHost().GetMetadata(), provenance.Filters, provenance.Service)}
	if n >= 0 {
		levels = slices.Insert(levels, 0, e.route.Action.(*xdsresource.Forward).Clusters[n].Overrides)
		names = slices.Insert(names, 0, levelWeighted)
		raw = slices.Insert(raw, 0, e.raw.weighted(e.index)[n].GetTypedPerFilterConfig())
		at = slices.Insert(at, 0, e.at(provenance.BackendRefs))
	}
	var list []Filter
	for i := range e.listener.Filters {
		in := &e.listener.Filters[i]
		f := Filter{
			Name: in.Name, Type: typeName(in.Filter), Disabled: in.Disabled, Level: levelListener,
			Config: e.filterConfig(in.Name), At: place(e.raw.listener.GetMetadata(), provenance.Filters, provenance.Service),
		}
		config := in.Config
		level, o, other := xdsresource.OverrideOf(in, levels)
		if level >= 0 {
			f.Level, f.At, f.Disabled = names[level], at[level], o.Disabled
			if o.Config != nil {
				f.Override, config = asJSON(overrideConfig(raw[level], in.Name)), o.Config
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
			f.Ends = filterEnd(config, e.rpc.Metadata())
		}
		if !e.afford(filterDetails + len(f.Config) + len(f.Override)) {
			return list
		}
		list = append(list, f)
	}
	return list
}

// filterEnd returns which RPCs with these metadata a filter with a configuration ends, or nil.
func filterEnd(config httpfilter.Config, md metadata.MD) *FilterEnd {
	c, ok := config.(interface {
		Ends(metadata.MD) (percent float64, code codes.Code)
	})
	if !ok {
		return nil
	}
	share, code := c.Ends(md)
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
	url := xdsresource.FilterType(f)
	return url[strings.LastIndexByte(url, '/')+1:]
}

// headers describes the edits of headers.
func (e routeExplainer) headers(m *xdsresource.HeaderMutations) (list []HeaderEdit) {
	if m == nil {
		return nil
	}
	for _, side := range []struct {
		name  string
		edits xdsresource.HeaderEdits
	}{{"request", m.Request}, {"response", m.Response}} {
		for _, level := range side.edits {
			for i := range level {
				edit := describeEdit(&level[i])
				if !e.afford(editDetails + len(level[i].Name) + len(edit)) {
					return list
				}
				list = append(list, HeaderEdit{Side: side.name, Name: level[i].Name, Edit: edit, Ignored: e.implementation.about(dialect.HeaderEdits)})
			}
		}
	}
	return list
}

// placeHeaders adds where the edits of a route were written to those that are not of a level above alone.
func (e routeExplainer) placeHeaders(edits []HeaderEdit) {
	at := e.at(provenance.Filters)
	if at == "" {
		return
	}
	raw := e.rawRoute()
	has := map[string]func(name string) bool{
		"request":  editing(raw.GetRequestHeadersToAdd(), raw.GetRequestHeadersToRemove()),
		"response": editing(raw.GetResponseHeadersToAdd(), raw.GetResponseHeadersToRemove()),
	}
	for j := range edits {
		if has[edits[j].Side](edits[j].Name) {
			edits[j].At = at
		}
	}
}

// editing reports whether a header, whose name is in lower case, is edited.
func editing(added []*corepb.HeaderValueOption, removed []string) func(name string) bool {
	return func(name string) bool {
		return slices.ContainsFunc(removed, func(r string) bool { return strings.EqualFold(r, name) }) ||
			slices.ContainsFunc(added, func(a *corepb.HeaderValueOption) bool { return strings.EqualFold(a.GetHeader().GetKey(), name) })
	}
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
