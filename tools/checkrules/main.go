// Command checkrules switches off one rule of the xDS client's protocol at a time (rules.txt), and reports whether the
// client then fails the transcript that is named after the rule (xdsclient/testdata/transcripts/rules.txt).
//
//	cd tools && go run ./checkrules -C .. [-rule REGEXP]
//	cd tools && go run ./checkrules -C .. -write [-rule REGEXP]   # searches for the counterexamples, writes the transcripts
//
// With -write the exhaustive checker (TestCheck), or that of random paths (TestCheckAtRandom), looks for an error of the client without the rule, and the path of the
// error is written as what the client with the rule does.
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
	"strconv"
	"strings"
)

//go:embed rules.txt
var table string

// line is a rule of the table.
var line = regexp.MustCompile(`(?m)^rule (.+); (.+); (.+); (.+)\n- ((?s).*?)\n\+ ?((?s).*?)\n(?:\n|\z)`)

type rule struct {
	name, file, way, scope, before, after string
}

func main() {
	dir := flag.String("C", ".", "the module's folder")
	only := flag.String("rule", "", "the rules to check, as a regular expression")
	write := flag.Bool("write", false, "search for counterexamples, and write them as transcripts")
	flag.Parse()
	wanted, failed := regexp.MustCompile(*only), 0
	rules := line.FindAllStringSubmatch(table, -1)
	if n := strings.Count(table, "\nrule "); n != len(rules) {
		fmt.Printf("rules.txt has %d rules, of which %d can be read\n", n, len(rules))
		os.Exit(1)
	}
	for _, of := range rules {
		r := rule{of[1], of[2], of[3], of[4], of[5], of[6]}
		if !wanted.MatchString(r.name) {
			continue
		}
		if err := r.check(*dir, *write); err != nil {
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

var (
	// path is what TestCheck prints of an error, and transcript what TestCheckPath prints.
	path       = regexp.MustCompile(`check_(?:random_)?test.go:\d+: (.*)\n.*path (".*"):`)
	transcript = regexp.MustCompile(`(?m)^((?:@ .*\n)+)((?s).*?)^---`)
)

// check checks one rule.
func (r *rule) check(dir string, write bool) error {
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
	tests := filepath.Join(dir, "xdsclient")
	if write {
		scope, random := strings.CutPrefix(r.scope, "random")
		test := "^TestCheck$"
		if random {
			test = "^TestCheckAtRandom$"
		}
		out, _ := command(tests, program, "-test.run", test, "-check.way", "^"+r.way+"$", "-check.scope", scope, "-check.time", "60s")
		found := path.FindStringSubmatch(out)
		if found == nil {
			return fmt.Errorf("no counterexample:\n%s", out)
		}
		text, err := strconv.Unquote(found[2])
		if err != nil {
			return err
		}
		out, err = command(dir, "go", "test", "./xdsclient", "-run", "^TestCheckPath$", "-v", "-check.path", text)
		if err != nil {
			return fmt.Errorf("with the rule the path is faulty, too: %s\n%s", text, out)
		}
		parts := transcript.FindStringSubmatch(out)
		if parts == nil {
			return fmt.Errorf("no transcript:\n%s", out)
		}
		written := parts[1] + "# Without the rule: " + found[1] + ".\n" + parts[2]
		if err := r.write(filepath.Join(tests, "testdata/transcripts/rules.txt"), written); err != nil {
			return err
		}
	}
	out, err := command(tests, program, "-test.run", "^TestTranscripts$/^rules$/^"+strings.ReplaceAll(r.name, " ", "_")+"$")
	if err == nil || !strings.Contains(out, "--- FAIL") {
		return fmt.Errorf("the client keeps to the transcript without the rule:\n%s", out)
	}
	return nil
}

// write puts the rule's transcript in the place of the one that the file has, or at its end.
func (r *rule) write(file, transcript string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	head := "\n== " + r.name + "\n"
	before, after, _ := strings.Cut(string(text), head)
	if at := strings.Index(after, "\n== "); at >= 0 {
		transcript += after[at:]
	}
	return os.WriteFile(file, []byte(before+head+transcript), 0o644)
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
