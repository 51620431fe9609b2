package xdsresource

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/grpc/metadata"

	"github.com/dynxds/dynxds/internal/matching"
	"github.com/dynxds/dynxds/internal/xdstest"
)

// routedRPCs returns what becomes of RPCs, in the order of text, which has them in lines that start with "> ", with " | " in between:
// a method, and, where they differ from those of other RPCs, @ and the authority, https, as= and the content-type,
// and headers. A word with odd characters is in quotes. Responses have the headers of their RPCs.
func routedRPCs(t *testing.T, rc *RouteConfiguration, text string) (lines []string) {
	t.Helper()
	for line := range strings.Lines(text) {
		for word := range strings.SplitSeq(strings.TrimSpace(strings.TrimPrefix(line, ">")), " | ") {
			lines = append(lines, "> "+word+" -> "+routed(rc, parseRPC(t, word)))
		}
	}
	return lines
}

func parseRPC(t *testing.T, text string) *matching.RPC {
	t.Helper()
	words := strings.Fields(text)
	rpc, md := &matching.RPC{Method: unquoted(t, words[0])}, metadata.MD{}
	for _, word := range words[1:] {
		authority, isAuthority := strings.CutPrefix(word, "@")
		contentType, isContentType := strings.CutPrefix(word, "as=")
		switch {
		case isAuthority:
			rpc.Authority = authority
		case word == "https":
			rpc.Scheme = word
		case isContentType:
			rpc.ContentType = contentType
		default:
			name, value, _ := strings.Cut(word, ":")
			md.Append(name, unquoted(t, value))
		}
	}
	rpc.Context = metadata.NewOutgoingContext(t.Context(), md)
	return rpc
}

func unquoted(t *testing.T, word string) string {
	t.Helper()
	if !strings.HasPrefix(word, `"`) {
		return word
	}
	text, err := strconv.Unquote(word)
	xdstest.NoError(t, err)
	return text
}

// routed says what becomes of an RPC: its virtual host, if that has a name, and the index of its route there; and what differs from the RPC
// and from what other routes do.
func routed(rc *RouteConfiguration, rpc *matching.RPC) string {
	vh := rc.VirtualHost(rpc.Authority)
	if vh == nil {
		return "no virtual host"
	}
	route := vh.Route(*rpc)
	if route == nil {
		return "no route"
	}
	parts := []string{strings.TrimSpace(fmt.Sprint(vh.Name, " ", slices.Index(vh.Routes, route)))}
	if path, ok := route.RewritePath(rpc.Method); !ok {
		parts = append(parts, "no path")
	} else if path != rpc.Method {
		parts = append(parts, "path "+path)
	}
	if hash, ok := route.Hash(rpc, 0x1234); ok {
		parts = append(parts, fmt.Sprintf("hash %x", hash))
	}
	switch action := route.Action.(type) {
	case *Forward:
		for i := range action.Clusters {
			parts = append(parts, forwarded(route, &action.Clusters[i], rpc))
		}
	case *Redirect:
		parts = append(parts, "at "+action.Location(&route.Match, rpc))
	}
	for i := range route.Mirrors {
		if m := &route.Mirrors[i]; matching.Draw(m.FractionPerMillion) {
			md := rpc.Metadata()
			m.Headers.Apply(md)
			text := fmt.Sprintf("mirrored to %q", m.Target(rpc))
			if m.Authority != "" {
				text += " as " + m.Authority
			}
			if m.ShadowSuffix {
				text += " as a shadow"
			}
			parts = append(parts, text+edited(" with", rpc, md))
		}
	}
	return strings.Join(parts, ", ")
}

// forwarded says where a cluster of a route takes an RPC, and with what.
func forwarded(route *Route, c *WeightedCluster, rpc *matching.RPC) string {
	text := fmt.Sprintf("to %q", c.Cluster(rpc))
	if authority := route.RewriteAuthority(rpc, c); authority != "" {
		text += " as " + authority
	}
	if route.Rewrite != nil && route.Rewrite.AutoHost {
		text += " as the endpoint"
	}
	if m := route.HeadersFor(c); m != nil {
		request, response := rpc.Metadata(), rpc.Metadata()
		m.Request.Apply(request)
		m.Response.Apply(response)
		text += edited(" with", rpc, request) + edited(" and from it", rpc, response)
	}
	return text
}

// edited says what headers have become of those of an RPC.
func edited(what string, rpc *matching.RPC, md metadata.MD) string {
	text := func(md metadata.MD) string {
		return strings.TrimPrefix(fmt.Sprintf("%q", map[string][]string(md)), "map")
	}
	if after := text(md); after != text(rpc.Metadata()) {
		return what + " " + after
	}
	return ""
}
