package metrics_test

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/dynxds/dynxds/internal/xdstest"
)

// object is an object of the dashboard's JSON.
type object map[string]any

// at returns the object of a key, an empty one if there is none.
func (o object) at(key string) object {
	m, _ := o[key].(map[string]any)
	return m
}

// list returns the objects of a list.
func (o object) list(key string) (all []object) {
	list, _ := o[key].([]any)
	for _, x := range list {
		m, _ := x.(map[string]any)
		all = append(all, m)
	}
	return all
}

func (o object) number(key string) int {
	n, ok := o[key].(float64)
	if !ok || n != float64(int(n)) {
		return -1
	}
	return int(n)
}

// needs fails the test unless an object has the keys, with values of these kinds.
func (o object) needs(t *testing.T, where string, keys map[string]any) {
	t.Helper()
	for key, kind := range keys {
		if value, ok := o[key]; !ok || fmt.Sprintf("%T", value) != fmt.Sprintf("%T", kind) {
			t.Errorf("%s: %s is %v, want a %T", where, key, value, kind)
		}
	}
}

// The units of the panels, by the ids that Grafana gives them.
var units = []string{"short", "percentunit", "reqps", "s", "bytes", "Bps"}

// The dashboard is as Grafana's schema of dashboards (kinds/dashboard of its sources) wants it, works with whatever data
// source is chosen, and shows metrics that exist.
func TestDashboard(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(deploy + "grafana/dynxds.json")
	xdstest.NoError(t, err)
	var d object
	xdstest.NoError(t, json.Unmarshal(text, &d))
	d.needs(t, "the dashboard", map[string]any{"title": "", "uid": "", "schemaVersion": 0.0, "version": 0.0, "editable": true, "refresh": "", "tags": []any{}, "panels": []any{}})
	if uid, _ := d["uid"].(string); len(uid) < 8 || len(uid) > 40 {
		t.Errorf("uid %q: want 8 to 40 characters", uid)
	}
	for _, l := range d.list("links") {
		l.needs(t, "a link", map[string]any{"title": "", "type": "", "icon": "", "tooltip": "", "url": "", "tags": []any{}, "targetBlank": true})
	}
	variables := []string{"__rate_interval"} // Grafana's own
	for _, v := range d.at("templating").list("list") {
		v.needs(t, "a variable", map[string]any{"name": "", "type": "", "query": ""})
		name, _ := v["name"].(string)
		variables = append(variables, name)
		if v["type"] == "query" {
			fromVariable(t, name, v)
		}
	}
	all := exported(t)
	used := func(where string, o object) {
		t.Helper()
		checkExpression(t, where, strings.ReplaceAll(fmt.Sprint(o["expr"]), "$__rate_interval", "1m"), all)
		for _, name := range regexp.MustCompile(`\$\{?(\w+)`).FindAllStringSubmatch(fmt.Sprint(o["expr"]), -1) {
			if !slices.Contains(variables, name[1]) {
				t.Errorf("%s: there is no variable %s", where, name[1])
			}
		}
	}
	for _, a := range d.at("annotations").list("list") {
		a.needs(t, "an annotation", map[string]any{"name": "", "enable": true, "iconColor": "", "expr": ""})
		fromVariable(t, "an annotation", a)
		used("an annotation", a)
	}
	titles, ids, taken := make(map[string]bool), make(map[any]bool), make(map[[2]int]string)
	for _, p := range d.list("panels") {
		p.needs(t, "a panel", map[string]any{"id": 0.0, "type": "", "title": "", "gridPos": map[string]any{}})
		title, _ := p["title"].(string)
		if title == "" || titles[title] || ids[p["id"]] {
			t.Errorf("panel %v has the title %q, which is empty, or another panel has its title or its id", p["id"], title)
		}
		titles[title], ids[p["id"]] = true, true
		occupy(t, title, p.at("gridPos"), taken)
		if p["type"] == "row" {
			p.needs(t, title, map[string]any{"collapsed": true, "panels": []any{}})
			continue
		}
		p.needs(t, title, map[string]any{"description": "", "options": map[string]any{}, "targets": []any{}})
		fromVariable(t, title, p)
		config := p.at("fieldConfig")
		config.needs(t, title, map[string]any{"defaults": map[string]any{}, "overrides": []any{}})
		if unit, _ := config.at("defaults")["unit"].(string); !slices.Contains(units, unit) {
			t.Errorf("%s has the unit %q, want one of %v", title, unit, units)
		}
		if len(p.list("targets")) == 0 {
			t.Errorf("the panel %q shows nothing", title)
		}
		refs := make(map[any]bool)
		for _, query := range p.list("targets") {
			query.needs(t, title, map[string]any{"refId": "", "expr": "", "legendFormat": ""})
			fromVariable(t, title, query)
			used(title, query)
			if refs[query["refId"]] {
				t.Errorf("%s has two queries %v", title, query["refId"])
			}
			refs[query["refId"]] = true
		}
	}
	if len(titles) < 30 || len(d.at("annotations").list("list")) == 0 {
		t.Error("the dashboard was not read")
	}
}

// fromVariable fails the test unless the data source is the one that the reader has chosen.
func fromVariable(t *testing.T, where string, o object) {
	t.Helper()
	if source := o.at("datasource"); source["type"] != "prometheus" || source["uid"] != "${datasource}" {
		t.Errorf("%s has the data source %v", where, source)
	}
}

// occupy fails the test if a panel leaves the grid of 24 columns, or covers another one.
func occupy(t *testing.T, title string, at object, taken map[[2]int]string) {
	t.Helper()
	x, y, w, h := at.number("x"), at.number("y"), at.number("w"), at.number("h")
	if x < 0 || y < 0 || w < 1 || h < 1 || x+w > 24 {
		t.Errorf("%s is not in the grid: %v", title, at)
	}
	for column := x; column < x+w; column++ {
		for line := y; line < y+h; line++ {
			if other, ok := taken[[2]int{column, line}]; ok {
				t.Fatalf("%s covers %s", title, other)
			}
			taken[[2]int{column, line}] = title
		}
	}
}
