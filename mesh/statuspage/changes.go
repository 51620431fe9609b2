package statuspage

import (
	"github.com/dynxds/dynxds/internal/changes"
	"github.com/dynxds/dynxds/internal/outcomes"
)

// changesView is the last changes, and the RPCs of the process in the last minute, of which they may be the cause.
type changesView struct {
	list[changes.Change]
	Started  []uint32 `json:"started"`
	Failures []uint32 `json:"failures"`
}

func (v *view) changes() any {
	find := v.query.search("changes")
	all := changes.Recent()
	var found []changes.Change
	for _, c := range all {
		if find.in(string(c.Kind), c.Type, c.Name, c.To, c.Server, c.Target, c.Detail) {
			found = append(found, c)
		}
	}
	view := changesView{list: listOf(len(all), found, 0, changes.Max, same)}
	view.Started, view.Failures = split(outcomes.Histories(1, func(outcomes.Key) int { return 0 })[0])
	return view
}
