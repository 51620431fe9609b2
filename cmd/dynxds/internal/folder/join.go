package folder

import "github.com/dynxds/dynxds/internal/document"

// Joiner makes the content of a folder out of its files, wherever these are kept. It is for one goroutine.
type Joiner struct {
	dir string
	// merged are the services that have slices, by name.
	merged map[string]*merged
}

// NewJoiner returns a joiner for files below dir, which is the Dir of its contents.
func NewJoiner(dir string) *Joiner { return &Joiner{dir: dir} }

// Join checks the files against each other and returns what they have together. What did not change since
// the last call are the same pointers. An error is a *document.Faults, with those of each file.
func (j *Joiner) Join(files []*File) (*Content, error) {
	var faults document.Faults
	c := &Content{Dir: j.dir, Files: len(files)}
	var services []*service
	var parts []*endpointSlice
	for _, f := range files {
		c.add(f.content)
		services, parts = append(services, f.services...), append(parts, f.slices...)
		faults.AddAll(f.faults)
	}
	checkNames(c, services, parts, &faults)
	c.Services = j.merge(services, parts, &faults)
	if err := faults.Err(); err != nil {
		return nil, err
	}
	return c, nil
}
