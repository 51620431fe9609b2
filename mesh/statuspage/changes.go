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
	return changesView{
		list: listOf(w, changes.Recent(), changes.Max, func(c changes.Change) bool {
			return w.finds(string(c.Kind), c.Type, c.Name, c.To, c.Server, c.Target, c.Detail)
		}, same),
		History: outcomes.Histories(1, func(outcomes.Key) int { return 0 })[0],
	}
}
