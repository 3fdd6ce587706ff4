package main

type siteCheckCommand struct{}

func (siteCheckCommand) Help() string {
	return `Ends with 81 if the file can't be used, with 0 if it can, warnings or not.

Example:

    openai4s site check`
}

func (siteCheckCommand) Run(a *app) error {
	_, err := a.loadSite()
	return err
}
