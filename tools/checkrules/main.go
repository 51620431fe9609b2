// Command checkrules switches off one rule of the xDS client's protocol at a time, and reports whether the exhaustive
// checker of xdsclient (TestCheck) then finds a fault. A rule without one has to be explained on the checker's page.
//
//	cd tools && go run ./checkrules -C .. [-rule REGEXP] [-v]
package main

import (
	_ "embed"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

//go:embed rules.txt
var table string

type rule struct {
	name, file, way, scope, before, after string
}

func main() {
	dir := flag.String("C", ".", "the module's folder")
	only := flag.String("rule", "", "the rules to check, as a regular expression")
	verbose := flag.Bool("v", false, "print the counterexamples")
	flag.Parse()
	wanted, missing := regexp.MustCompile(*only), 0
	for _, r := range parse(table) {
		if !wanted.MatchString(r.name) {
			continue
		}
		output, found, err := r.check(*dir)
		if err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", r.name, err)
		}
		if !found {
			missing++
		}
		fmt.Printf("%-40s counterexample: %v\n", r.name, found)
		if *verbose {
			fmt.Println(output)
		}
	}
	if missing > 0 {
		fmt.Printf("%d rules without a counterexample\n", missing)
		os.Exit(1)
	}
}

// parse reads the table.
func parse(text string) (rules []rule) {
	var into *string
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		head, isRule := strings.CutPrefix(line, "rule ")
		before, isBefore := strings.CutPrefix(line, "- ")
		after, isAfter := strings.CutPrefix(line, "+ ")
		switch {
		case strings.HasPrefix(line, "#"), line == "":
			into = nil
		case isRule:
			part := strings.Split(head, "; ")
			rules = append(rules, rule{name: part[0], file: part[1], way: part[2], scope: part[3]})
		case isBefore:
			into = &rules[len(rules)-1].before
			*into = before
		case isAfter || line == "+":
			into = &rules[len(rules)-1].after
			*into = after
		case into != nil:
			*into += "\n" + line
		}
	}
	return rules
}

// check runs the checker without the rule.
func (r *rule) check(dir string) (output string, found bool, err error) {
	path, err := filepath.Abs(filepath.Join(dir, "xdsclient", r.file))
	if err != nil {
		return "", false, err
	}
	code, err := os.ReadFile(path)
	if err != nil {
		return "", false, err
	}
	if n := strings.Count(string(code), r.before); n != 1 {
		return "", false, fmt.Errorf("%s has %q %d times, want once", r.file, r.before, n)
	}
	temp, err := os.MkdirTemp("", "checkrules")
	if err != nil {
		return "", false, err
	}
	defer os.RemoveAll(temp)
	changed, overlay := filepath.Join(temp, "changed.go"), filepath.Join(temp, "overlay.json")
	if err := os.WriteFile(changed, []byte(strings.Replace(string(code), r.before, r.after, 1)), 0o600); err != nil {
		return "", false, err
	}
	list, err := json.Marshal(map[string]map[string]string{"Replace": {path: changed}})
	if err != nil {
		return "", false, err
	}
	if err := os.WriteFile(overlay, list, 0o600); err != nil {
		return "", false, err
	}
	test := exec.Command("go", "test", "-vet=off", "-overlay", overlay, "-run", "^TestCheck$", "./xdsclient",
		"-check.way", "^("+r.way+")", "-check.scope", r.scope, "-check.time", "20s")
	test.Dir = dir
	out, err := test.CombinedOutput()
	if strings.Contains(string(out), "build failed") {
		return "", false, fmt.Errorf("without the rule the code does not build:\n%s", out)
	}
	return string(out), err != nil && strings.Contains(string(out), "--- FAIL"), nil
}
