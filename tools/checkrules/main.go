// Command checkrules switches off one rule of the xDS client's protocol at a time (rules.txt), and reports whether the
// client then fails the transcript that is named after the rule (xdsclient/testdata/transcripts/rules.txt).
//
//	cd tools && go run ./checkrules -C .. [-rule REGEXP]
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

// line is a rule of the table.
var line = regexp.MustCompile(`(?m)^rule (.+?); (.+?); .+\n- ((?s).*?)\n\+ ?((?s).*?)\n(?:\n|\z)`)

type rule struct{ name, file, before, after string }

func main() {
	dir := flag.String("C", ".", "the module's folder")
	only := flag.String("rule", "", "the rules to check, as a regular expression")
	flag.Parse()
	wanted, failed := regexp.MustCompile(*only), 0
	rules := line.FindAllStringSubmatch(table, -1)
	if n := strings.Count(table, "\nrule "); n != len(rules) {
		fmt.Printf("rules.txt has %d rules, of which %d can be read\n", n, len(rules))
		os.Exit(1)
	}
	for _, of := range rules {
		r := rule{of[1], of[2], of[3], of[4]}
		if !wanted.MatchString(r.name) {
			continue
		}
		if err := r.check(*dir); err != nil {
			failed++
			fmt.Printf("%s: %v\n", r.name, err)
		} else {
			fmt.Printf("%s: its transcript needs it\n", r.name)
		}
	}
	if failed > 0 {
		os.Exit(1)
	}
}

// check checks one rule.
func (r *rule) check(dir string) error {
	temp, err := os.MkdirTemp("", "checkrules")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp)
	overlay, err := r.overlay(dir, temp)
	if err != nil {
		return err
	}
	program := filepath.Join(temp, "without.test")
	if out, err := command(dir, "go", "test", "-c", "-vet=off", "-o", program, "-overlay", overlay, "./xdsclient"); err != nil {
		return fmt.Errorf("without the rule the code does not build:\n%s", out)
	}
	out, err := command(filepath.Join(dir, "xdsclient"), program, "-test.run", "^TestTranscripts$/^rules$/^"+strings.ReplaceAll(r.name, " ", "_")+"$")
	if err == nil || !strings.Contains(out, "--- FAIL") {
		return fmt.Errorf("the client keeps to the transcript without the rule:\n%s", out)
	}
	return nil
}

// overlay writes the files with which the rule is switched off.
func (r *rule) overlay(dir, temp string) (file string, err error) {
	path, err := filepath.Abs(filepath.Join(dir, "xdsclient", r.file))
	if err != nil {
		return "", err
	}
	code, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	if n := strings.Count(string(code), r.before); n != 1 {
		return "", fmt.Errorf("%s has %q %d times, want once", r.file, r.before, n)
	}
	changed, overlay := filepath.Join(temp, "changed.go"), filepath.Join(temp, "overlay.json")
	if err := os.WriteFile(changed, []byte(strings.Replace(string(code), r.before, r.after, 1)), 0o600); err != nil {
		return "", err
	}
	list, err := json.Marshal(map[string]map[string]string{"Replace": {path: changed}})
	if err != nil {
		return "", err
	}
	return overlay, os.WriteFile(overlay, list, 0o600)
}

func command(dir string, args ...string) (out string, err error) {
	c := exec.Command(args[0], args[1:]...)
	c.Dir = dir
	text, err := c.CombinedOutput()
	return string(text), err
}
