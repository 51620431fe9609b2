package routestatus

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/dynxds/dynxds/internal/bounds"
	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/mesh/controlplane"
	"github.com/dynxds/dynxds/mesh/kubernetes/internal/cluster"
	"github.com/dynxds/dynxds/mesh/meshroute"
)

// refusal is that of the routes to one service by one client.
type refusal struct {
	stream  uint64
	client  meshroute.Client
	service string
	text    string
}

// maxRefusals bounds the list, maxTexts the texts in a message, and maxRefusalText the bytes of each.
const maxRefusals, maxTexts, maxRefusalText = 1000, 3, 256

// OnNACK is for site.Options. The clients are those of the server.
func (w *Writer) OnNACK(server *controlplane.Server) {
	w.server.Store(server)
	cluster.Signal(w.noted)
}

// OnLeftOut is for site.Options.
func (w *Writer) OnLeftOut(reports []meshroute.Report) {
	all := make(map[string]string, len(reports))
	for _, report := range reports {
		object := report.Policy
		if object == "" {
			object = "Service/" + report.Source.File
		}
		all[object] = strings.TrimPrefix(all[object]+"; "+report.Message, "; ")
	}
	if before := w.leftOut.Swap(&all); !maps.Equal(*before, all) {
		cluster.Signal(w.noted)
	}
}

// refusing reports whether a client rejects routes.
func refusing(t controlplane.TypeStatus) bool {
	return t.TypeURL == meshroute.RouteConfigurationType && t.Refusing && t.NACK != nil
}

// refusals looks at the clients.
func (w *Writer) refusals() (list []refusal) {
	server := w.server.Load()
	if server == nil {
		return nil
	}
	// The overview costs next to nothing, but does not have all names: these are asked for where a client refuses routes.
	for _, c := range server.Overview() {
		if !slices.ContainsFunc(c.Types, refusing) {
			continue
		}
		c, _ = server.Client(c.ID)
		for _, t := range c.Types {
			if !refusing(t) {
				continue
			}
			text := t.NACK.Err.Message()
			names := t.Names
			// A response may have routes of several services. Clients mostly say which they mean. A name may be the end or the begin of another.
			if meant := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !says(text, name) }); len(meant) > 0 {
				names = meant
			}
			for _, name := range names {
				if len(list) == maxRefusals {
					return list
				}
				list = append(list, refusal{c.ID, meshroute.ClientFromNode(c.Node), cluster.ServiceIn(name), bounds.Text(text, maxRefusalText)})
			}
		}
	}
	return list
}

// says reports whether a text has a name, which is no part of another one there. A client may have 200,000 names, and chooses the text.
func says(text, name string) bool {
	for from := 0; name != ""; from++ {
		at := strings.Index(text[from:], name)
		if at < 0 {
			break
		}
		from += at
		before, after := text[:from], text[from+len(name):]
		if !strings.ContainsAny(before[max(0, from-1):], inNames+".") && !strings.ContainsAny(after[:min(1, len(after))], inNames) {
			return true
		}
	}
	return false
}

// inNames are characters of names, beside the dot, which may also end a sentence.
const inNames = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-"

// refused says how many clients refuse a route as it is attached to some parents, and why; empty: none does.
func refused(of *cluster.Route, parents []cluster.Parent, list []refusal) string {
	clients, number := map[uint64]bool{}, map[string]int{}
	for _, r := range list {
		isFor := func(p cluster.Parent) bool { return p.IsFor(r.service) }
		if !slices.ContainsFunc(parents, isFor) || !of.Concerns(r.client, r.service) || clients[r.stream] {
			continue
		}
		clients[r.stream] = true
		number[r.text]++
	}
	if len(clients) == 0 {
		return ""
	}
	reasons := slices.SortedFunc(maps.Keys(number), func(a, b string) int { return cmp.Or(number[b]-number[a], strings.Compare(a, b)) })
	var said []string
	for _, text := range reasons[:min(len(reasons), maxTexts)] {
		said = append(said, fmt.Sprintf("\"%s\" (%d)", text, number[text]))
	}
	if more := len(reasons) - maxTexts; more > 0 {
		said = append(said, fmt.Sprintf("and %d more reasons", more))
	}
	atLeast := ""
	if len(list) == maxRefusals {
		atLeast = "at least "
	}
	return fmt.Sprintf("refused by %s%s of one replica, where the routes from before stay: %s", atLeast, faults.Count(len(clients), "client"), strings.Join(said, ", "))
}
