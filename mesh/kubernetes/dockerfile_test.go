package main

import (
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dynxds/dynxds/internal/xdstest"
)

// Each instruction of the Dockerfile can be carried out, as far as that can be seen without a builder of images: the programs are built as it
// says, need no files of the system, and are where it takes them from. It compiles all of client-go once more, so it is for "make nightly".
func TestDockerfile(t *testing.T) {
	t.Parallel()
	if os.Getenv("DYNXDS_IMAGE") == "" {
		t.Skip("DYNXDS_IMAGE is not set")
	}
	text, err := os.ReadFile(filepath.Join(manifests, "Dockerfile"))
	xdstest.NoError(t, err)
	root, err := filepath.Abs(repository)
	xdstest.NoError(t, err)
	image, env, stages := t.TempDir(), os.Environ(), 0
	var user string
	inImage := map[string]bool{}
	for _, line := range strings.Split(string(text), "\n") {
		instruction, rest, _ := strings.Cut(line, " ")
		fields := strings.Fields(rest)
		switch instruction {
		case "", "#", "WORKDIR":
		case "FROM":
			stages++
			_, user, _ = strings.Cut(fields[0], ":")
			if version, isGo := strings.CutPrefix(fields[0], "golang:"); isGo {
				module, err := os.ReadFile("go.mod")
				xdstest.NoError(t, err)
				if !strings.Contains(string(module), "\ngo "+version+".") {
					t.Errorf("the image has Go %s, which is not that of go.mod", version)
				}
			}
		case "ENV":
			env = append(env, fields...)
		case "COPY":
			from, sources := "", fields[:len(fields)-1]
			if after, ok := strings.CutPrefix(fields[0], "--from="); ok {
				from, sources = after, sources[1:]
			}
			for _, source := range sources {
				path := filepath.Join(root, source)
				if from != "" {
					path = filepath.Join(image, source)
					inImage["/"+filepath.Base(source)] = true
				}
				_, err := os.Stat(path)
				xdstest.NoError(t, err)
			}
		case "RUN":
			// The programs go to a folder of the test in place of the image's root.
			script := strings.ReplaceAll(rest, "-o /", "-o "+image+"/")
			command := exec.Command("sh", "-ec", script)
			command.Dir, command.Env = root, env
			if output, err := command.CombinedOutput(); err != nil {
				t.Fatalf("%s: %v\n%s", line, err, output)
			}
		case "ENTRYPOINT":
			if program := strings.Trim(rest, `[]"`); !inImage[program] {
				t.Errorf("the image has no %s", program)
			}
		default:
			t.Errorf("the test does not know the instruction %q", line)
		}
	}
	xdstest.Equal(t, "stages", 2, stages)
	xdstest.Equal(t, "user", "nonroot", user)
	for program := range inImage {
		path := filepath.Join(image, program)
		file, err := elf.Open(path)
		xdstest.NoError(t, err)
		defer file.Close()
		for _, p := range file.Progs {
			if p.Type == elf.PT_INTERP || p.Type == elf.PT_DYNAMIC {
				t.Errorf("%s is not static: it has a segment %s", program, p.Type)
			}
		}
		output, err := exec.Command(path, "--help").CombinedOutput()
		if err != nil || !strings.Contains(string(output), "Usage:") {
			t.Errorf("%s --help: %v\n%s", program, err, output)
		}
	}
	if len(inImage) == 0 {
		t.Error("the image has no program")
	}
}
