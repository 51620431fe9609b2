package explain

import (
	"fmt"
	"strings"

	"github.com/dynxds/dynxds/internal/faults"
)

// maxPictured bounds the branches of each part of a picture.
const maxPictured = 8

// Picture draws where RPCs go as a tree, for people with a terminal: routes with their shares, clusters, endpoints. It is
// empty if no route decides.
func (e *Explanation) Picture() string {
	root := branch{text: "RPC " + e.Request.Method}
	for i := range e.Routes {
		if r := &e.Routes[i]; r.Action != nil {
			root.below = append(root.below, e.pictureOf(r))
		}
	}
	if e.Unrouted > 0 && len(e.Routes) > 0 {
		root.below = append(root.below, branch{text: formatPercent(e.Unrouted) + " no route: UNAVAILABLE"})
	}
	if len(root.below) == 0 {
		return ""
	}
	var b strings.Builder
	root.draw(&b, "", "")
	return b.String()
}

func (e *Explanation) pictureOf(r *Route) branch {
	all := e.clustersByName()
	b := branch{text: formatPercent(r.Share) + " " + r.title()}
	for _, end := range all.endings(r.Action) {
		below := branch{text: formatPercent(end.share) + " " + end.text}
		if end.cluster != "" && end.share > 0 {
			below.text = fmt.Sprintf("%s cluster %s", formatPercent(end.share), quote(end.cluster))
			below.below = all.picture(end.cluster, len(all))
		}
		b.below = append(b.below, below)
	}
	return b
}

// picture has the way from a cluster on, through at most so many clusters.
func (all clustersByName) picture(name string, depth int) []branch {
	c := all[name]
	switch {
	case c == nil:
		return nil
	case c.Error != "":
		return []branch{{text: unavailable + ": " + c.Error}}
	case c.Waits+c.Unknown != "":
		return []branch{{text: c.Waits + c.Unknown}}
	case c.InUse != "" && depth > 0:
		return []branch{{text: "cluster " + quote(c.InUse), below: all.picture(c.InUse, depth-1)}}
	case c.Assignment == nil || c.Assignment.InUse < 0:
		return nil
	}
	var list []branch
	for _, l := range c.Assignment.Priorities[c.Assignment.InUse].Localities {
		for i := range l.Endpoints {
			if e := &l.Endpoints[i]; e.Usable {
				list = append(list, branch{text: strings.Join(strings.Fields(e.Address+" "+e.row("").cells[3]), " ")})
			}
		}
	}
	return []branch{{text: strings.TrimPrefix(c.endpoints(), ", "), below: list}}
}

// branch is a line of a picture, and what is below it.
type branch struct {
	text  string
	below []branch
}

// draw writes a branch. lead is before its own line, and indent before those below it.
func (b *branch) draw(to *strings.Builder, lead, indent string) {
	fmt.Fprintf(to, "%s%s\n", lead, faults.Printable(b.text, ""))
	shown := b.below
	if n := len(shown) - maxPictured; n > 1 {
		shown = append(shown[:maxPictured:maxPictured], branch{text: fmt.Sprintf("and %d more", n)})
	}
	for i := range shown {
		if i == len(shown)-1 {
			shown[i].draw(to, indent+"└─ ", indent+"   ")
		} else {
			shown[i].draw(to, indent+"├─ ", indent+"│  ")
		}
	}
}
