package explain

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/httpfilter"
	"github.com/dynxds/dynxds/internal/dialect"
	"github.com/dynxds/dynxds/internal/headeredit"
	"github.com/dynxds/dynxds/internal/protofield"
	"github.com/dynxds/dynxds/internal/provenance"
	"github.com/dynxds/dynxds/internal/secrets"
	"github.com/dynxds/dynxds/internal/typeurl"
	"github.com/dynxds/dynxds/internal/xdsresource"
)

// filters returns the HTTP filters of RPCs that take the route, with the overrides of one of its clusters, which are raw as messages;
// or without them, for what holds for all clusters.
func (e *routeExplainer) filters(overrides xdsresource.FilterOverrides, raw map[string]*anypb.Any) []Filter {
	levels := []xdsresource.FilterOverrides{overrides, e.route.Overrides, e.virtualHost.Overrides}
	places := []struct { // of the levels
		name, at string
		raw      map[string]*anypb.Any
	}{
		{levelWeighted, e.at(provenance.BackendRefs), raw},
		{levelRoute, e.at(provenance.Filters), e.raw.GetTypedPerFilterConfig()},
		{levelVirtualHost, placeOf(e.rawHost, provenance.Filters), e.rawHost.GetTypedPerFilterConfig()},
	}
	var list []Filter
	for i := range e.listener.Filters {
		in := &e.listener.Filters[i]
		f := Filter{
			Name: in.Name, Type: typeName(in.Filter), Disabled: in.Disabled, Level: levelListener,
			Config: e.filterConfigs[in.Name], At: placeOf(e.rawListener, provenance.Filters),
		}
		config := in.Config
		level, o, other := xdsresource.OverrideOf(in, levels)
		if level >= 0 {
			f.Level, f.At, f.Disabled = places[level].name, places[level].at, o.Disabled
			if o.Config != nil {
				f.Override, config = asJSON(overrideConfig(places[level].raw, in.Name)), o.Config
			}
		}
		if other != nil {
			e.note("an override for filter %q is for the type %s, not %s, and is passed over", in.Name, typeName(other), f.Type)
		}
		f.Ignored = e.implementation.filter(f.Type)
		if _, ok := in.Filter.(httpfilter.ClientFilter); f.Ignored == "" && !ok && !in.Filter.IsTerminal() {
			f.Ignored = "it runs on servers only"
		}
		if f.Ignored == "" && !f.Disabled {
			rpc := &httpfilter.RPC{Method: e.rpc.Method, Authority: e.rpc.Authority}
			if c, ok := config.(interface {
				Ends(context.Context, *httpfilter.RPC) (percent float64, code codes.Code)
			}); ok {
				if share, code := c.Ends(e.rpc.Context, rpc); percent(share) > 0 {
					f.Ends = &FilterEnd{Percent: percent(share), Code: codeName(code)}
				}
			}
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

// About what filters and header edits need in an explanation, beside their configuration and values.
const filterDetails, editDetails = 200, 100

// typeName returns the name of the message that configures a filter.
func typeName(f httpfilter.Filter) string {
	return typeurl.Name(f.TypeURLs()[0])
}

// headers describes the edits of headers, which were written at a place.
func (e *routeExplainer) headers(m *xdsresource.HeaderMutations, at string) (list []Setting) {
	if m == nil {
		return nil
	}
	for _, side := range []struct {
		name  string
		edits xdsresource.HeaderEdits
	}{{"request ", m.Request}, {"response ", m.Response}} {
		for _, level := range side.edits {
			for i := range level {
				value := side.name + level[i].Name + ": " + describeEdit(&level[i])
				if !e.afford(editDetails + len(value)) {
					return list
				}
				list = append(list, Setting{Name: "headers", Value: value, Ignored: e.implementation.about(dialect.HeaderEdits), At: at})
			}
		}
	}
	return list
}

// describeEdit describes everything that a level does to one header.
func describeEdit(h *headeredit.Edit) string {
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

// overrideConfig returns the configuration in an entry of typed_per_filter_config.
func overrideConfig(configs map[string]*anypb.Any, name string) *anypb.Any {
	a := configs[name]
	if wrapper := new(routepb.FilterConfig); a.MessageIs(wrapper) {
		return read(a, wrapper).GetConfig()
	}
	return a
}

// asJSON returns the message in an Any as JSON, nil if there is none. Of one of a type that is not
// linked in, or of one with messages in messages without end, it returns the type and the bytes: protojson
// copies a message in an Any once for each Any that it is in.
func asJSON(a *anypb.Any) json.RawMessage {
	if a == nil {
		return nil
	}
	a = secrets.Hide(a)
	if !protofield.Deeper(a.GetValue(), maxDepth) {
		if m, err := a.UnmarshalNew(); err == nil {
			if text, err := (protojson.MarshalOptions{UseProtoNames: true}).Marshal(m); err == nil {
				return compact(text)
			}
		}
	}
	text, _ := json.Marshal(map[string]any{"@type": a.GetTypeUrl(), "value": a.GetValue()}) // which cannot fail
	return text
}

// maxDepth is how many messages may be within each other in one that is shown as JSON.
const maxDepth = 100

// compact removes white space from JSON, which protojson varies.
func compact(text []byte) json.RawMessage {
	var b bytes.Buffer
	_ = json.Compact(&b, text) // which cannot fail
	return b.Bytes()
}
