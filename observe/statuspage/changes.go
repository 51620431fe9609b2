package statuspage

import "github.com/dynxds/dynxds/internal/changes"

func (v *view) changes() any {
	find := v.query.search("changes")
	all := changes.Recent()
	var found []changes.Change
	for _, c := range all {
		if find.in(string(c.Kind), c.Type, c.Name, c.To, c.Server, c.Target, c.Detail) {
			found = append(found, c)
		}
	}
	return listOf(len(all), found, 0, changes.Max, func(c changes.Change) changes.Change {
		c.Name, c.Target, c.Server = name(c.Name), name(c.Target), name(c.Server)
		return c
	})
}
