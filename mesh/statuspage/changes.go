package statuspage

import (
	"github.com/dynxds/dynxds/internal/changes"
	"github.com/dynxds/dynxds/internal/outcomes"
)

// changesView is the last changes, and the RPCs of the process in the last minute, of which they may be the cause.
type changesView struct {
	list[changes.Change]
	outcomes.History
}

func (v *view) changes(w wanted) any {
	view := changesView{list: listOf(w, changes.Recent(), changes.Max, func(c changes.Change, find needle) bool {
		return find.in(string(c.Kind), c.Type, c.Name, c.To, c.Server, c.Target, c.Detail)
	}, same)}
	view.History = outcomes.Histories(1, func(outcomes.Key) int { return 0 })[0]
	return view
}
