package folder

import "github.com/dynxds/dynxds/mesh/internal/document"

// Join makes the content of a folder out of its files, wherever these are kept: it checks them against each other and returns what
// they have together, by the pointers of the files. dir is the Dir of the content. An error is a *document.Faults, with those
// of each file.
func Join(dir string, files []*File) (*Content, error) {
	var faults document.Faults
	c := &Content{Dir: dir, Files: len(files)}
	for _, f := range files {
		c.Services = append(c.Services, f.content.Services...)
		c.Policies = append(c.Policies, f.content.Policies...)
		c.Resources = append(c.Resources, f.content.Resources...)
		faults.AddAll(f.faults)
	}
	checkNames(c, &faults)
	if err := faults.Err(); err != nil {
		return nil, err
	}
	return c, nil
}
